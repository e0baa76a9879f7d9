"""Images of projects in an allocation, without the programs that run them: what is refused."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import slipway
from tests.workers.node_agent.backend_contract import BuildLines
from workers import launcher
from workers.node_agent.errors import StartError
from workers.node_agent.folders import NodeFolders
from workers.node_agent.image_runtimes import ImageRunner, TaskImage

ROOT = Path(__file__).resolve().parents[3]
DIGEST = "ab" * 32
REFERENCE = f"registry.example.org:5000/slipway/prj_1@sha256:{DIGEST}"
# It writes what it was called with, as its documentation has it, and fails at the end.
PROGRAM = """#!/bin/sh
echo "$(basename "$0") $*" >>"{calls}"
env | sort >"{calls}.env"
case "$1" in
import | pull) [ "$1" = pull ] && touch "$2" || touch "$3" ;;
create) mkdir -p "$ENROOT_DATA_PATH/$4" ;;
*) echo "no user namespaces" >&2; exit 3 ;;
esac
"""


@pytest.fixture
def base() -> Iterator[Path]:
    """The folder of a pool, which must not be below /tmp."""
    cache = ROOT / ".cache"
    cache.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="r-", dir=cache))
    yield folder
    shutil.rmtree(folder)


def runner_in(base: Path, runtime: str, reference: str = REFERENCE) -> ImageRunner:
    """Return what runs an image for the first agent of a pool."""
    folders = NodeFolders(base / "0")
    folders.prepare(
        launcher=Path(launcher.__path__[0]).resolve(),
        sdk=Path(slipway.__path__[0]).resolve(),
        copies=True,
    )
    folders.persistent = base / "persistent"
    return ImageRunner(TaskImage(runtime, reference, "/usr/bin/python3"), base, folders, gpus=True)


def refusal_of(runner: ImageRunner, log: BuildLines) -> str:
    """Return why an image cannot be used."""
    with pytest.raises(StartError) as caught:
        asyncio.run(runner.start(log))
    assert caught.value.reason == "environment_failed"
    runner.close()
    return str(caught.value)


def test_what_cannot_work_is_refused_with_the_reason(base: Path, tmp_path: Path) -> None:
    log = BuildLines()
    assert "this machine has no program /nowhere/enroot" in refusal_of(
        runner_in(base, "/nowhere/enroot"), log
    )
    for reference in ("debian:12", REFERENCE.replace("/slipway", "/Slipway"), f"{REFERENCE}0"):
        assert "names no image by digest" in refusal_of(runner_in(base, "sh", reference), log)
    assert "is below /tmp" in refusal_of(runner_in(tmp_path, "sh"), log)
    assert "too long for sockets" in refusal_of(runner_in(base / ("x" * 80), "sh"), log)


@pytest.mark.parametrize("name", ["enroot", "apptainer"])
def test_an_image_is_fetched_once_and_a_failed_start_says_why(
    base: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLIPWAY_JOIN_TOKENS", "secret")
    program, calls = tmp_path / name, tmp_path / "calls"
    program.write_text(PROGRAM.format(calls=calls))
    program.chmod(0o755)
    for _ in range(2):
        message = refusal_of(runner_in(base, str(program)), BuildLines())
        assert "The container of the task did not start: no user namespaces" in message
    lines = calls.read_text().splitlines()
    image, draft = base / "images", base / "images" / f"{DIGEST[:32]}.draft"
    source = f"registry.example.org:5000{'#' if name == 'enroot' else '/'}slipway/prj_1"
    fetches = {
        "enroot": [
            f"enroot import --output {draft} docker://{source}@sha256:{DIGEST}",
            f"enroot create --force --name {DIGEST[:32]} {draft}",
        ],
        "apptainer": [f"apptainer pull {draft} docker://{source}@sha256:{DIGEST}"],
    }[name]
    assert lines[: len(fetches)] == fetches
    starts = [line for line in lines[len(fetches) :] if line.startswith((name,))]
    assert len(starts) == 2, lines
    if name == "enroot":
        assert "--env NVIDIA_VISIBLE_DEVICES=all" in starts[0]
    else:
        assert starts[0].startswith("apptainer exec --contain --cleanenv --no-home --pwd / --nv")
        assert str(image / f"{DIGEST[:32]}.sif") in starts[0]
    for target in ("/tmp", "/var/tmp"):  # noqa: S108
        assert f"{base}/0/container-tmp:{target}" in starts[0]
    assert f"{base}/persistent:{base}/persistent" in starts[0]
    # The tokens of the agent do not reach it.
    assert "secret" not in Path(f"{calls}.env").read_text()
    assert not (base / "0" / "container-tmp").exists()


def test_an_image_that_nobody_uses_is_removed_after_two_weeks(base: Path, tmp_path: Path) -> None:
    program = tmp_path / "enroot"
    program.write_text(PROGRAM.format(calls=tmp_path / "calls"))
    program.chmod(0o755)
    first, second = REFERENCE, REFERENCE.replace("ab", "cd")
    used = runner_in(base, str(program), first)
    with pytest.raises(StartError):
        asyncio.run(used.start(BuildLines()))
    ready = base / "images" / f"{DIGEST[:32]}.ready"
    os.utime(ready, (0, 0))
    refusal_of(runner_in(base, str(program), second), BuildLines())
    assert ready.exists(), "the agent that uses it has not ended"
    used.close()
    refusal_of(runner_in(base, str(program), second.replace("cd", "ef")), BuildLines())
    assert not ready.exists()
    assert not (base / "images" / "enroot" / DIGEST[:32]).exists()
