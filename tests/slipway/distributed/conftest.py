"""Ranks for tests: real processes that speak over gloo, forked from one that imported torch."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

ROOT = Path(__file__).resolve().parents[3]
START_TIMEOUT_S = 120


@dataclass(frozen=True)
class RankEnd:
    """How a rank ended: its exit code (negative: the signal), what the case returned, its log."""

    code: int
    value: Any
    log: str


class RunRanks(Protocol):
    """Runs a function of tests.slipway.distributed.cases on `world_size` ranks."""

    def __call__(
        self,
        world_size: int,
        case: str,
        *,
        environment: dict[str, str] | None = None,
        fails: bool = False,
        timeout_s: float = 60,
        grace_s: float = 15,
        **arguments: Any,
    ) -> list[RankEnd]: ...


@pytest.fixture(scope="session")
def _warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A process with torch imported; costs seconds once instead of in every rank."""
    path = str(tmp_path_factory.mktemp("warm") / "socket")
    environment = os.environ | {
        "PYTHONPATH": f"{ROOT / 'platform'}{os.pathsep}{ROOT}",
        "OMP_NUM_THREADS": "1",
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.slipway.distributed.warm", path],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline().startswith("ready"), "the warm process did not start"
        yield path
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=START_TIMEOUT_S)
        process.stdout.close()


@pytest.fixture
def run_ranks(_warm: str) -> RunRanks:
    """Run a case on real ranks and return how each ended, in the order of ranks."""

    def run(
        world_size: int,
        case: str,
        *,
        environment: dict[str, str] | None = None,
        fails: bool = False,
        timeout_s: float = 60,
        grace_s: float = 15,
        **arguments: Any,
    ) -> list[RankEnd]:
        job = {"world_size": world_size, "case": case, "environment": environment or {}}
        job |= {"arguments": arguments, "timeout_s": timeout_s, "grace_s": grace_s}
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout_s + 60)
            connection.connect(_warm)
            with connection.makefile("rw") as stream:
                stream.write(json.dumps(job) + "\n")
                stream.flush()
                ends = [RankEnd(**end) for end in json.loads(stream.readline())]
        if not fails:
            bad = [f"rank {n} ended with {e.code}:\n{e.log}" for n, e in enumerate(ends) if e.code]
            assert not bad, "\n".join(bad)
        return ends

    return run
