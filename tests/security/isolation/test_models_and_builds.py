"""The same attacks as the code of a model in a replica, and as the build of a package."""

import io
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slipway.schemas.agent import EnvironmentSpec
from slipway.schemas.serving import ModelFormat, ReplicaSpec
from tests.security.isolation.arena import (
    PACKAGE,
    Arena,
    Neighbour,
    arena_at,
    hostile_files,
)
from tests.security.isolation.attacks import LEVELS, NAMESPACES, ROOTLESS
from tests.security.isolation.test_jobs import check
from tests.workers.machines import eventually

pytestmark = pytest.mark.slow
ATTACKER = PACKAGE.replace("/", ".") + ".attacker"
MLMODEL = """
flavors:
  python_function:
    loader_module: hostile_loader
    python_version: 3.11.0
    code: code
model_uuid: 0123456789abcdef0123456789abcdef
utc_time_created: '2026-11-21 00:00:00'
"""
LOADER = f"""
from {ATTACKER} import main


def _load_pyfunc(path):
    main()
    raise ValueError("attacked")
"""
# A build backend of its own, which needs no other package to run.
PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]

[project]
name = "lighthouse"
version = "1.0"
"""
BACKEND = f"""
import os, pathlib, sys

here = pathlib.Path(__file__).parent
sys.path.insert(0, str(here))


def build_wheel(*arguments, **options):
    from {ATTACKER} import main

    os.chdir(here)
    main()
    raise SystemExit("attacked")


get_requires_for_build_wheel = lambda *arguments: []
"""


@pytest.fixture(scope="module")
def packages() -> Iterator[Path]:
    """The index of the node: a folder that builds may read.

    pytest closes its own folders to others whenever a run starts on this machine.
    """
    with tempfile.TemporaryDirectory(prefix="sl-packages-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture(scope="module", params=LEVELS)
def arena(request: pytest.FixtureRequest, packages: Path) -> Iterator[Arena]:
    made = arena_at(
        request.param,
        "--readable",
        str(packages),
        environment={"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(packages)},
    )
    yield made
    made.close()


@pytest.fixture(scope="module")
def neighbours(arena: Arena) -> list[Neighbour]:
    return [arena.neighbour("leave"), arena.neighbour(warm=False)]


def replica_spec(model: Path) -> str:
    """The orders of a replica that serves an MLflow model."""
    return ReplicaSpec(
        replica_id="rep-1",
        endpoint_id="ep-1",
        endpoint="digits",
        revision_id="rev-1",
        model="hostile",
        model_version="1",
        format=ModelFormat.MLFLOW,
        model_dir=str(model),
        secret="a secret between gateway and replica",
    ).model_dump_json()


@pytest.mark.torch
def test_the_code_of_a_model(arena: Arena, neighbours: list[Neighbour]) -> None:
    work = arena.machine.data_dir / "tasks" / f"task-{arena.started + 1}-1" / "work"
    files = {f"model/code/{name}": text for name, text in hostile_files().items()}
    files |= {"model/MLmodel": MLMODEL, "model/code/hostile_loader.py": LOADER}
    files["targets.json"] = arena.orders(neighbours)
    key = arena.want(
        "beta",
        files,
        argv=("slipway-model-server",),
        env={"SLIPWAY_REPLICA": replica_spec(work / "model")},
    )
    arena.log_until(key, "^(<end>)", within_s=200)
    check(arena.level, arena.findings_in(arena.portal.state.log_of(key)))


def source_package(folder: Path, files: dict[str, str]) -> None:
    """Write a source package whose build runs what its author likes."""
    metadata = "Metadata-Version: 2.1\nName: lighthouse\nVersion: 1.0\n"
    files = {**files, "pyproject.toml": PYPROJECT, "backend.py": BACKEND, "PKG-INFO": metadata}
    with tarfile.open(folder / "lighthouse-1.0.tar.gz", "w:gz") as tar:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"lighthouse-1.0/{name}")
            entry.size = len(text.encode())
            tar.addfile(entry, io.BytesIO(text.encode()))


def build(arena: Arena, packages: Path, neighbours: list[Neighbour]) -> dict[str, Any]:
    """Have the node build the package; answers what its build found."""
    source_package(packages, hostile_files() | {"targets.json": arena.orders(neighbours)})
    digest = "b" * 64
    arena.portal.state.environments[digest] = EnvironmentSpec(
        digest=digest, requirements="lighthouse==1.0\n", python="3.11"
    )
    key = arena.want("beta", {"train.py": ""}, environment=digest)
    end = eventually(lambda: arena.portal.state.end_of(key), within_s=200)
    assert end.reason == "environment_failed", end

    reports = arena.portal.state.environment_reports[digest]
    eventually(lambda: reports[-1].state != "building", within_s=60, what="the end of the build")
    text = "".join(report.log for report in reports)
    assert "<end>" in text, text
    return arena.findings_in(text)


def test_the_build_of_a_package(arena: Arena, packages: Path, neighbours: list[Neighbour]) -> None:
    result = build(arena, packages, neighbours)
    # A build does not even see our own code, which the attack tries to change.
    result["environment"]["error"] = ""
    # Without network: a sandboxed step reaches the package indexes and nothing else.
    check(arena.level, result, offline=arena.level in (NAMESPACES, ROOTLESS))
