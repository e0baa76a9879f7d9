"""An agent in an allocation of another scheduler, whose machines others wait for."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.workers.fake_portal import LASTING_TOKEN, FakePortal, Key, make_spec
from tests.workers.machines import Machine, always, eventually
from workers.launcher.launch import StateFolder
from workers.launcher.processes import descendants

_UNTIL_IT_MAY_END = """
import os, pathlib, time
folder = pathlib.Path(os.environ["SLIPWAY_PERSISTENT_DIR"])
(folder / "began").touch()
while not (folder / "over").exists():
    time.sleep(0.02)
"""

_WITHOUT_HANDLER = """
import os, pathlib, time
folder = pathlib.Path(os.environ["SLIPWAY_PERSISTENT_DIR"])
(folder / "began").touch()
time.sleep(600)
"""


@pytest.fixture
def allocated(make_machine: Callable[..., Machine]) -> Machine:
    """A node in an allocation, which waits eight seconds for its portal."""
    machine = make_machine("--allocation", "gang", "--allocation-patience", "8")
    machine.environment = {"SLIPWAY_JOIN_TOKENS": LASTING_TOKEN, "SLIPWAY_ALLOCATION_INDEX": "0"}
    return machine.start().connected()


def has_left(machine: Machine) -> bool:
    """Return whether the agent has ended."""
    assert machine.agent is not None
    return machine.agent.poll() is not None


def test_an_allocation_without_work_or_portal_is_left(
    portal: FakePortal, allocated: Machine
) -> None:
    portal.stop()
    eventually(lambda: has_left(allocated), what="the end of the agent")
    assert allocated.agent is not None
    assert allocated.agent.returncode == 0
    assert "leaving the allocation: the portal has not answered" in allocated.log.read_text()


@pytest.mark.thorough
def test_an_allocation_is_kept_while_its_task_runs(portal: FakePortal, allocated: Machine) -> None:
    digest = portal.state.add_snapshot({"train.py": _UNTIL_IT_MAY_END})
    portal.state.want("t1", make_spec("python", "train.py", snapshot=digest), node="gang-0")
    folder = allocated.data_dir / "persistent" / "run-1"
    eventually((folder / "began").exists, what="the task")
    portal.stop()
    always(lambda: not has_left(allocated), for_s=10)
    (folder / "over").touch()
    eventually(lambda: has_left(allocated), what="the end of the agent")


@pytest.mark.thorough
def test_an_allocation_is_kept_while_the_portal_answers(
    portal: FakePortal, allocated: Machine
) -> None:
    always(lambda: not has_left(allocated), for_s=10)
    allocated.connected_again()


@pytest.mark.thorough
def test_a_server_starts_where_the_kernel_gives_no_sandbox(
    portal: FakePortal, make_machine: Callable[..., Machine]
) -> None:
    """As in a pod: its shim opens the socket of the server before the task is confined."""
    machine = make_machine("--allocation", "gang", "--isolation", "shared")
    machine.environment = {"SLIPWAY_JOIN_TOKENS": LASTING_TOKEN, "SLIPWAY_ALLOCATION_INDEX": "0"}
    machine.start()
    key = portal.state.want("t1", make_spec("slipway-model-server"), node="gang-0")
    end = eventually(
        lambda: portal.state.end_of(key), within_s=120, what="the end of a server without a model"
    )
    assert "running" in portal.state.kinds(key)
    assert end.reason == "exit", end.message


def run_without_handler(portal: FakePortal, allocated: Machine) -> Key:
    """Start a task that does not handle SIGTERM, and wait until it runs."""
    digest = portal.state.add_snapshot({"train.py": _WITHOUT_HANDLER})
    key = portal.state.want("t1", make_spec("python", "train.py", snapshot=digest), node="gang-0")
    folder = allocated.data_dir / "persistent" / "run-1"
    eventually((folder / "began").exists, what="the task")
    return key


def test_a_task_that_ends_of_the_signal_of_the_engine_is_preempted(
    portal: FakePortal, allocated: Machine
) -> None:
    """Slurm sends it to every process, in any order."""
    key = run_without_handler(portal, allocated)
    shim = StateFolder(slot(allocated, key)).shim()
    assert shim is not None
    assert allocated.agent is not None
    for pid in (*descendants(shim.pid), shim.pid, allocated.agent.pid):
        os.kill(pid, signal.SIGTERM)
    end = eventually(lambda: portal.state.end_of(key), what="the end of the task")
    assert (end.reason, end.message) == ("preempted", "The engine ended the allocation.")
    eventually(lambda: has_left(allocated), what="the end of the agent")


def test_a_task_that_a_signal_ends_by_itself_was_not_preempted(
    portal: FakePortal, allocated: Machine
) -> None:
    key = run_without_handler(portal, allocated)
    shim = StateFolder(slot(allocated, key)).shim()
    assert shim is not None
    for pid in descendants(shim.pid):
        os.kill(pid, signal.SIGTERM)
    end = eventually(lambda: portal.state.end_of(key), what="the end of the task")
    assert end.reason == "signal", end.message


def slot(allocated: Machine, key: Key) -> Path:
    """Return the state folder of a task: an allocation has a numbered data folder of its own."""
    return allocated.data_dir / "0" / "tasks" / f"{key[0]}-{key[1]}" / "state"
