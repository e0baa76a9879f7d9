"""Inside a job: what a script learns, what it tells, and that it runs unchanged anywhere else."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slipway import job
from tests.live import ROOT

NAMES = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "TORCHELASTIC_RESTART_COUNT", "SLIPWAY_WORKLOAD"),
    *("SLIPWAY_PROJECT", "SLIPWAY_ATTEMPT", "SLIPWAY_PARAMS", "SLIPWAY_STRATEGY"),
    "SLIPWAY_DATASETS",
    *("SLIPWAY_CHECKPOINT_DIR", "SLIPWAY_PERSISTENT_DIR", "SLIPWAY_TASK_SOCKET"),
)
STEPS = """
import sys
from slipway import job
for step in range(1, int(sys.argv[1]) + 1):
    job.report_step(step)
"""


@pytest.fixture(autouse=True)
def laptop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which nothing of Slipway is set."""
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def door(tmp_path: Path) -> Iterator[socket.socket]:
    """The other end of a task's socket, as its shim opens it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "task.sock"))
        listener.setblocking(False)
        yield listener


def heard(door: socket.socket) -> list[dict[str, int]]:
    """Return what was told so far."""
    messages = []
    while True:
        try:
            messages.append(json.loads(door.recv(65_536)))
        except BlockingIOError:
            return messages


def run(script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name not in NAMES}
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env=kept | {"PYTHONPATH": str(ROOT / "platform")} | environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )


def test_a_laptop_is_a_job_of_one_process() -> None:
    assert job.current() == job.Job()
    assert not job.current().is_slipway
    assert job.current().is_first
    job.report_step(1)
    assert job.should_stop() is False


def test_under_torchrun_the_ranks_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "2")
    me = job.current()
    assert (me.rank, me.world_size, me.local_rank, me.attempt) == (3, 4, 1, 3)
    assert not me.is_slipway
    assert not me.is_first


def test_a_rank_of_a_job_knows_all_of_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in {
        "RANK": "1",
        "WORLD_SIZE": "2",
        "SLIPWAY_WORKLOAD": "wl_1",
        "SLIPWAY_PROJECT": "vision",
        "SLIPWAY_ATTEMPT": "2",
        "SLIPWAY_PARAMS": '{"lr": "0.1"}',
        "SLIPWAY_STRATEGY": "ddp",
        "SLIPWAY_PERSISTENT_DIR": str(tmp_path),
    }.items():
        monkeypatch.setenv(name, value)
    me = job.current()
    assert me.is_slipway
    assert (me.id, me.project, me.attempt, me.strategy) == ("wl_1", "vision", 2, "ddp")
    assert me.params == {"lr": "0.1"}
    assert me.checkpoint_dir == tmp_path / "checkpoints"
    monkeypatch.setenv("SLIPWAY_CHECKPOINT_DIR", str(tmp_path / "elsewhere"))
    assert job.current().checkpoint_dir == tmp_path / "elsewhere"


@pytest.mark.parametrize("value", ["", "x", "[1]", "1" * 5000, "[" * 100_000])
def test_an_environment_that_makes_no_sense_does_not_stop_a_script(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    for name in NAMES:
        monkeypatch.setenv(name, value)
    me = job.current()
    assert (me.rank, me.world_size, me.attempt) == (0, 1, 1)
    assert me.params == {}
    job.report_step(1)


def test_the_first_and_the_last_of_many_steps_are_told(door: socket.socket) -> None:
    run(STEPS, "1000", SLIPWAY_TASK_SOCKET=door.getsockname(), RANK="1")
    messages = heard(door)
    assert messages[0] == {"step": 1, "rank": 1}
    assert messages[-1] == {"step": 1000, "rank": 1}
    assert len(messages) < 100, "a fast loop must not keep the agent busy"


def test_steps_apart_are_each_told(door: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPWAY_TASK_SOCKET", door.getsockname())
    for step in (1, 2, 3):
        job.report_step(step)
        time.sleep(0.06)
    assert [message["step"] for message in heard(door)] == [1, 2, 3]


def test_a_fork_tells_its_own_steps_with_its_own_rank(
    door: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLIPWAY_TASK_SOCKET", door.getsockname())
    script = """
import os
from slipway import job
job.report_step(1)
for rank in ("1", "2"):
    if os.fork() == 0:
        os.environ["RANK"] = rank
        job.report_step(7)
        os._exit(0)
    os.wait()
"""
    run(script, SLIPWAY_TASK_SOCKET=door.getsockname(), RANK="0")
    assert [(message["rank"], message["step"]) for message in heard(door)] == [
        (0, 1),
        (1, 7),
        (2, 7),
    ]


def test_nobody_listening_costs_a_script_nothing(tmp_path: Path) -> None:
    run(STEPS, "1000", SLIPWAY_TASK_SOCKET=str(tmp_path / "nobody.sock"))
    run(STEPS, "10", SLIPWAY_TASK_SOCKET="x" * 500)


@pytest.mark.thorough
def test_a_full_socket_never_blocks(door: socket.socket) -> None:
    door.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    script = (
        STEPS
        + "\nimport time\nfor step in range(60):\n    job.report_step(step); time.sleep(0.051)"
    )
    started = time.monotonic()
    run(script, "1", SLIPWAY_TASK_SOCKET=door.getsockname())
    assert time.monotonic() - started < 20


def test_a_step_costs_a_microsecond_or_two(door: socket.socket) -> None:
    script = """
import time
from slipway import job
job.report_step(1)
best = 1.0
for _ in range(20):
    started = time.perf_counter()
    for step in range(1000):
        job.report_step(step)
    best = min(best, (time.perf_counter() - started) / 1000)
print(best * 1e6)
"""
    microseconds = float(run(script, SLIPWAY_TASK_SOCKET=door.getsockname()).stdout)
    assert microseconds < 20


def test_being_asked_to_stop_is_seen_between_two_steps() -> None:
    script = """
import os, signal
from slipway import job
assert not job.should_stop()
os.kill(os.getpid(), signal.SIGTERM)
assert job.should_stop()
if os.fork() == 0:
    os._exit(job.should_stop())
assert os.wait()[1] == 0, "the wish was not for the child"
print("saved")
"""
    assert run(script).stdout == "saved\n"


def test_a_handler_that_stood_there_is_called_as_well() -> None:
    script = """
import os, signal
signal.signal(signal.SIGTERM, lambda *_: print("mine"))
from slipway import job
job.should_stop()
os.kill(os.getpid(), signal.SIGTERM)
print(job.should_stop())
"""
    assert run(script).stdout == "mine\nTrue\n"


def test_until_somebody_asks_the_signal_ends_the_process() -> None:
    script = "import os, signal\nfrom slipway import job\nos.kill(os.getpid(), signal.SIGTERM)"
    with pytest.raises(subprocess.CalledProcessError) as caught:
        run(script)
    assert caught.value.returncode == -signal.SIGTERM


def test_the_module_needs_the_standard_library_alone() -> None:
    script = """
import sys
before = set(sys.modules)
from slipway import job
loaded = {name.partition(".")[0] for name in set(sys.modules) - before}
print(sorted(loaded - set(sys.stdlib_module_names)))
"""
    assert run(script).stdout == "['slipway']\n"
