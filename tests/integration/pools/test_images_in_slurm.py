"""A Dockerfile in a pool of Slurm: Docker builds it, a registry has it, and Enroot runs it.

Run it through scripts/docker-test-engine.sh, with what scripts/build-enroot has built.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.image_registry import PROGRAM, ImageRegistry, running_registry
from tests.integration.pools.images import TIER, end_of, running_builder, submit
from tests.integration.pools.jobs import JOBS, log_of, prepare, wait_for_state
from tests.portals import RunningPortal, running_slipway
from tests.processes import wait_for
from tests.slurm_cluster import SlurmCluster, missing_programs, running_slurm

ENROOT = Path(os.environ.get("TEST_ENROOT", "/var/tmp/slipway-test-enroot"), "bin", "enroot")  # noqa: S108
ROOT = Path(__file__).resolve().parents[3]
pytestmark = [
    pytest.mark.docker,
    pytest.mark.thorough,
    pytest.mark.skipif(not ENROOT.exists(), reason="no Enroot: use scripts/build-enroot"),
    pytest.mark.skipif(
        bool(missing_programs()), reason=f"Slurm is not installed: {missing_programs()}"
    ),
    pytest.mark.skipif(not PROGRAM, reason="no Docker: use scripts/docker-test-engine.sh"),
]
DOCKERFILE = "FROM BASE\nRUN echo built-by-docker > /marker\nENV OF_THE_IMAGE=yes\n"
PROBE = """
import os, pathlib, tempfile
print("marker", pathlib.Path("/marker").read_text().strip(), flush=True)
print("variable", os.environ["OF_THE_IMAGE"], "rank", os.environ["RANK"], flush=True)
def attempt(action):
    try:
        return action()
    except OSError as error:
        return f"refused {error.errno}"
for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
    if "JOIN_TOKENS" in str(attempt(path.read_text)):
        print("token in", path, flush=True)
folder = pathlib.Path(os.environ["SLIPWAY_PERSISTENT_DIR"]).parents[2]
for name in ("0/node.json", "1/node.json", "images", "0/shared/bell"):
    place = folder / name
    seen = attempt(lambda: list(place.iterdir()) if place.is_dir() else place.read_text())
    print("place", name, str(seen)[:60], flush=True)
print("place outside", attempt(lambda: pathlib.Path(OUTSIDE).read_text()[:60]), flush=True)
for folder in ("/tmp", "/var/tmp", os.environ["TMPDIR"]):
    pathlib.Path(folder, "written").write_text("x")
print("temporary", tempfile.gettempdir(), flush=True)
print("image", attempt(lambda: pathlib.Path("/marker").write_text("changed")), flush=True)
"""
SAVER = (
    "import signal, sys, time\n"
    "def save(*_):\n    print('saved', flush=True); sys.exit(143)\n"
    "signal.signal(signal.SIGTERM, save)\nprint('starts', flush=True)\ntime.sleep(600)\n"
)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder for the agents. A container has a /tmp of its own, so it is not there."""
    cache = ROOT / ".cache"
    cache.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="sl-", dir=cache))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)  # Slurm may still end scripts in it


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    """A cluster of two nodes."""
    with running_slurm(tmp_path_factory.mktemp("slurm") / "cluster") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ImageRegistry]:
    """A registry that everybody may read."""
    path = tmp_path_factory.mktemp("images") / "registry"
    with running_registry(path, is_open=True) as registry:
        yield registry


@pytest.fixture(scope="module")
def slipway(
    tmp_path_factory: pytest.TempPathFactory,
    slurm: SlurmCluster,
    registry: ImageRegistry,
    folder: Path,
) -> Iterator[RunningPortal]:
    """A Slipway with a registry, a builder, and a pool in that cluster."""
    variables: dict[str, Any] = {"SLIPWAY_IMAGE_REGISTRY": f"{registry.host}/slipway"}
    with running_slipway(tmp_path_factory.mktemp("slipway"), **variables) as portal:
        settings = {
            "partition": "main",
            "slurm_conf": str(slurm.conf),
            "folder": str(folder),
            "portal_url": portal.url,
            "container_runtime": str(ENROOT),
        }
        pool = {"name": "twin", "engine": "slurm", "settings": settings}
        with portal.client("root") as root:
            prepare(root, pool)
            root.post("/tiers", json=TIER).raise_for_status()
        with running_builder(portal, registry):
            yield portal


def test_two_tasks_run_in_the_image_of_the_project(slipway: RunningPortal, folder: Path) -> None:
    with slipway.client("root") as root:
        script = PROBE.replace("OUTSIDE", repr(str(ROOT / "README.md")))
        job_id = submit(root, script, DOCKERFILE, nodes=2)
        ended = end_of(root, job_id)
        log = log_of(root, job_id)
        assert ended["state"] == "succeeded", (ended["explanation"], log)
        for rank in range(2):
            log = log_of(root, job_id, rank=rank)
            assert "marker built-by-docker" in log
            assert f"variable yes rank {rank}" in log
            assert "token in" not in log
            seen = [line for line in log.splitlines() if line.startswith("place ")]
            assert len(seen) == 5, log
            assert all(" refused " in line for line in seen), seen
            assert "temporary /tmp" in log
            assert "image refused" in log
        # The temporary files have ended with the task, and the image is kept for the next one.
        wait_for(lambda: root.get("/pools/twin").json()["requests"] == 0, "end", within_s=60)
        assert not list(folder.glob("*/container-tmp"))
        assert len(list(folder.glob("images/*.ready"))) == 1


def test_a_job_in_an_image_saves_when_it_is_cancelled(
    slipway: RunningPortal, slurm: SlurmCluster
) -> None:
    with slipway.client("root") as root:
        job_id = submit(root, SAVER, DOCKERFILE)
        wait_for(lambda: "starts" in log_of(root, job_id), "first line", within_s=300)
        root.post(f"{JOBS}/{job_id}/cancel", json={}).raise_for_status()
        ended = wait_for_state(root, job_id, "succeeded", "failed", "stopped", "lost")
        assert ended["state"] == "stopped", ended
        assert "saved" in log_of(root, job_id)
        wait_for(lambda: root.get("/pools/twin").json()["requests"] == 0, "end", within_s=60)
        assert not slurm.run("squeue", "--noheader").strip()


def test_an_image_that_the_registry_lost_fails_with_the_reason(
    slipway: RunningPortal, registry: ImageRegistry, folder: Path
) -> None:
    with slipway.client("root") as root:
        for ready in folder.glob("images/*.ready"):
            ready.unlink()
        shutil.rmtree(registry.folder / "images")
        job_id = submit(root, PROBE, DOCKERFILE)
        ended = end_of(root, job_id)
        assert ended["state"] == "failed", ended
        assert "enroot import failed" in ended["explanation"], ended
