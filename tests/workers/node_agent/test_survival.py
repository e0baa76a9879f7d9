"""What dies around a task, in each phase, and what the task and its story make of it."""

import os
import signal
from collections.abc import Callable

import pytest

from tests.workers.fake_portal import FakePortal, Key
from tests.workers.machines import Machine, always, eventually, is_alive

# Counts in a file that outlives attempts, one line a beat, and ends when told.
BEATING = """
import os, pathlib, time
beats = pathlib.Path(os.environ["SLIPWAY_PERSISTENT_DIR"], "beats")
over = pathlib.Path(os.environ["SLIPWAY_PERSISTENT_DIR"], "over")
number = 0
while not over.exists():
    number += 1
    with beats.open("a") as file:
        file.write(f"{os.environ['TORCHELASTIC_RESTART_COUNT']} {os.getpid()} {number}\\n")
    print("beat", number, flush=True)
    time.sleep(0.02)
print("<end>")
"""


def beats_of(machine: Machine) -> list[str]:
    """What beating scripts have written on this machine."""
    path = machine.data_dir / "persistent" / "run-1" / "beats"
    return path.read_text().splitlines() if path.exists() else []


def let_end(machine: Machine) -> None:
    """Tell beating scripts to end."""
    (machine.data_dir / "persistent" / "run-1" / "over").touch()


def start_beating(portal: FakePortal, machine: Machine, name: str = "t1", **changes: object) -> Key:
    """Start a task and wait for its first beats."""
    key = portal.state.run(name, BEATING, **changes)
    eventually(lambda: len(beats_of(machine)) > 2, what="beats")
    eventually(lambda: "running" in portal.state.kinds(key))
    return key


def check_story(portal: FakePortal, key: Key) -> None:
    """The reports are whole and in order, and the log holds each beat once."""
    kinds = portal.state.kinds(key)
    assert kinds.count("running") == 1
    assert kinds.count("ended") == 1
    assert kinds[-1] == "ended"
    eventually(lambda: portal.state.log_of(key).endswith("<end>\n"))
    numbers = [int(line.split()[1]) for line in portal.state.log_of(key).splitlines()[:-1]]
    assert numbers == list(range(1, len(numbers) + 1))


def test_ranks_do_not_notice_that_the_agent_is_killed(portal: FakePortal, machine: Machine) -> None:
    key = start_beating(portal, machine)
    processes = machine.processes(key)
    machine.kill()
    before = len(beats_of(machine))
    eventually(lambda: len(beats_of(machine)) > before + 5)
    machine.start().connected()
    always(lambda: all(is_alive(pid) for pid in processes), for_s=1.5)
    let_end(machine)
    end = eventually(lambda: portal.state.end_of(key))
    assert end.reason == "completed"
    assert len({line.split()[1] for line in beats_of(machine)}) == 1
    check_story(portal, key)


@pytest.mark.thorough
def test_what_happens_while_no_agent_runs_is_told_later(
    portal: FakePortal, machine: Machine
) -> None:
    key = start_beating(portal, machine)
    shim = machine.shim(key)
    machine.kill()
    let_end(machine)
    eventually(lambda: not shim.is_alive())
    assert portal.state.end_of(key) is None
    machine.start()
    end = eventually(lambda: portal.state.end_of(key))
    assert end.reason == "completed"
    check_story(portal, key)


@pytest.mark.thorough
def test_an_agent_killed_again_and_again_loses_and_repeats_nothing(
    portal: FakePortal, machine: Machine
) -> None:
    key = start_beating(portal, machine)
    for _ in range(4):
        machine.kill()
        machine.start().connected()
    let_end(machine)
    eventually(lambda: portal.state.end_of(key))
    check_story(portal, key)


@pytest.mark.thorough
def test_a_killed_shim_takes_its_ranks_along_and_the_task_ends(
    portal: FakePortal, machine: Machine
) -> None:
    key = portal.state.run(
        "t1", "import subprocess, sys\nsubprocess.run(['sleep', '600'])", procs=2
    )
    eventually(lambda: len(machine.processes(key)) >= 5, what="shim, ranks and their children")
    processes = machine.processes(key)
    os.kill(processes[0], signal.SIGKILL)
    end = eventually(lambda: portal.state.end_of(key))
    assert end.reason == "signal"
    assert "task's supervisor was killed" in end.message
    eventually(lambda: not any(is_alive(pid) for pid in processes))


@pytest.mark.thorough
def test_a_shim_killed_while_no_agent_runs_is_told_too(
    portal: FakePortal, machine: Machine
) -> None:
    key = start_beating(portal, machine)
    processes = machine.processes(key)
    machine.kill()
    os.kill(processes[0], signal.SIGKILL)
    eventually(lambda: not any(is_alive(pid) for pid in processes))
    machine.start()
    assert eventually(lambda: portal.state.end_of(key)).reason == "signal"


@pytest.mark.thorough
def test_a_killed_rank_ends_the_task_with_its_signal(portal: FakePortal, machine: Machine) -> None:
    key = start_beating(portal, machine, procs=2)
    ranks = machine.processes(key)[1:]
    os.kill(max(ranks), signal.SIGKILL)
    end = eventually(lambda: portal.state.end_of(key))
    assert end.reason == "signal"
    assert "SIGKILL" in end.message
    assert {rank.signal for rank in end.ranks} <= {signal.SIGKILL, signal.SIGTERM}


@pytest.mark.thorough
def test_a_portal_that_is_away_misses_nothing(portal: FakePortal, machine: Machine) -> None:
    key = start_beating(portal, machine)
    portal.stop()
    before = len(beats_of(machine))
    eventually(lambda: len(beats_of(machine)) > before + 30)
    let_end(machine)
    eventually(lambda: not machine.shim(key).is_alive())
    portal.start()
    eventually(lambda: portal.state.end_of(key), within_s=30)
    check_story(portal, key)


@pytest.mark.thorough
def test_a_task_is_started_once_however_often_it_is_wanted(
    portal: FakePortal, machine: Machine
) -> None:
    key = portal.state.run("t1", BEATING)
    for _ in range(100):
        portal.state.bump()
    eventually(lambda: len(beats_of(machine)) > 20)
    let_end(machine)
    eventually(lambda: portal.state.end_of(key))
    assert len({line.split()[1] for line in beats_of(machine)}) == 1
    check_story(portal, key)


@pytest.mark.thorough
def test_an_ended_task_that_is_still_listed_is_not_started_again(
    portal: FakePortal, machine: Machine
) -> None:
    key = portal.state.run("t1", BEATING)
    eventually(lambda: len(beats_of(machine)) > 2)
    let_end(machine)
    eventually(lambda: portal.state.end_of(key))
    count = len(beats_of(machine))
    machine.kill()
    machine.start().connected()
    portal.state.bump()
    machine.connected_again().connected_again()
    assert len(beats_of(machine)) == count


@pytest.mark.thorough
def test_a_new_epoch_starts_only_when_nothing_of_the_old_one_runs(
    portal: FakePortal, machine: Machine
) -> None:
    # The old attempt ignores SIGTERM, so that only its death can make room.
    stubborn = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + BEATING
    key = portal.state.run("t1", stubborn)
    eventually(lambda: len(beats_of(machine)) > 5)
    spec = portal.state.tasks[key].spec
    assert spec is not None
    newer = portal.state.want("t1", spec, epoch=2)
    eventually(lambda: beats_of(machine)[-1].startswith("1 "))
    let_end(machine)
    assert eventually(lambda: portal.state.end_of(newer)).reason == "completed"
    restarts = [line.split()[0] for line in beats_of(machine)]
    assert restarts == sorted(restarts), "two attempts wrote at the same time"
    assert eventually(lambda: portal.state.end_of(key)).reason == "fenced"


def test_an_epoch_the_portal_calls_stale_is_killed(portal: FakePortal, machine: Machine) -> None:
    key = start_beating(portal, machine)
    processes = machine.processes(key)
    portal.state.stale.add(key)
    eventually(lambda: not any(is_alive(pid) for pid in processes))
    portal.state.forget(key)
    eventually(lambda: not machine.state(key).path.exists(), what="the folder to be removed")


@pytest.mark.thorough
def test_what_is_not_listed_must_not_run(portal: FakePortal, machine: Machine) -> None:
    key = start_beating(portal, machine)
    processes = machine.processes(key)
    portal.state.forget(key)
    eventually(lambda: not any(is_alive(pid) for pid in processes))
    eventually(lambda: not machine.state(key).path.exists(), what="the folder to be removed")


@pytest.mark.thorough
def test_a_terminated_agent_leaves_its_tasks_running(portal: FakePortal, machine: Machine) -> None:
    key = start_beating(portal, machine)
    assert machine.terminate() == 0
    before = len(beats_of(machine))
    eventually(lambda: len(beats_of(machine)) > before + 5)
    machine.start().connected()
    let_end(machine)
    eventually(lambda: portal.state.end_of(key))
    check_story(portal, key)


@pytest.mark.thorough
def test_an_agent_can_be_told_to_leave_nothing_behind(
    portal: FakePortal, make_machine: Callable[..., Machine]
) -> None:
    machine = make_machine("--stop-tasks-on-exit").start().connected()
    key = start_beating(portal, machine)
    processes = machine.processes(key)
    assert machine.terminate() == 0
    assert not any(is_alive(pid) for pid in processes)


@pytest.mark.thorough
def test_two_agents_do_not_share_a_folder(portal: FakePortal, machine: Machine) -> None:
    first = machine.agent
    machine.start()
    second = machine.agent
    assert second is not None
    assert second.wait(20) == 1
    assert "Another agent already runs" in machine.log.read_text()
    machine.agent = first
