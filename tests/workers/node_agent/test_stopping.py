"""Stopping on request, and by the node itself when it has lost the portal."""

import os
import signal
from collections.abc import Callable
from contextlib import suppress

import pytest

from slipway.schemas.agent import TaskKey
from slipway.schemas.workloads import ReasonCode
from tests.workers.fake_portal import FakePortal, make_spec
from tests.workers.machines import Machine, always, eventually, is_alive
from tests.workers.node_agent.test_survival import beats_of, start_beating


@pytest.mark.thorough
def test_a_stopped_task_may_say_goodbye(portal: FakePortal, machine: Machine) -> None:
    script = (
        "import signal, sys, time\n"
        "def leave(*_):\n"
        "    print('saved', flush=True); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, leave)\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)\n"
    )
    key = portal.state.run("t1", script)
    eventually(lambda: "ready" in portal.state.log_of(key))
    portal.state.stop(key, ReasonCode.BUDGET)
    end = eventually(lambda: portal.state.end_of(key))
    assert end.reason == "budget"
    assert end.exit_code == 0
    eventually(lambda: portal.state.log_of(key) == "ready\nsaved\n")


@pytest.mark.thorough
def test_a_task_that_does_not_listen_is_killed_after_the_grace(
    portal: FakePortal, machine: Machine
) -> None:
    script = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "os.fork()\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)\n"
    )
    key = portal.state.run("t1", script, procs=2, stop_grace_s=0.5)
    eventually(lambda: all("ready" in portal.state.log_of(key, rank) for rank in range(2)))
    processes = machine.processes(key)
    portal.state.stop(key)
    end = eventually(lambda: portal.state.end_of(key))
    assert end.reason == "user"
    assert {rank.signal for rank in end.ranks} == {signal.SIGKILL}
    eventually(lambda: not any(is_alive(pid) for pid in processes))


@pytest.mark.thorough
def test_a_frozen_shim_is_killed_when_it_does_not_stop(
    portal: FakePortal, machine: Machine
) -> None:
    key = start_beating(portal, machine, stop_grace_s=0.2)
    processes = machine.processes(key)
    os.kill(processes[0], signal.SIGSTOP)
    portal.state.stop(key)
    end = eventually(lambda: portal.state.end_of(key), within_s=30)
    assert end.reason == "user"
    eventually(lambda: not any(is_alive(pid) for pid in processes))


@pytest.mark.thorough
def test_a_task_is_stopped_before_it_ever_ran(portal: FakePortal, machine: Machine) -> None:
    spec = make_spec("python", "-c", "print()", world_size=2, first_rank=1)
    key = portal.state.want("t1", spec, index=1)
    eventually(lambda: portal.state.reports[key])
    eventually(lambda: "until all 2 tasks" in portal.state.reports[key][-1].message)
    portal.state.stop(key)
    end = eventually(lambda: portal.state.end_of(key))
    assert end.reason == "user"
    assert "running" not in portal.state.kinds(key)


@pytest.mark.thorough
def test_stop_after_the_agent_was_killed(portal: FakePortal, machine: Machine) -> None:
    key = start_beating(portal, machine)
    machine.kill()
    portal.state.stop(key)
    machine.start()
    assert eventually(lambda: portal.state.end_of(key)).reason == "user"


@pytest.mark.thorough
def test_a_node_without_its_portal_ends_its_tasks_itself(
    portal: FakePortal, make_machine: Callable[..., Machine]
) -> None:
    portal.state.lease_s = 2.0
    machine = make_machine().start().connected()
    key = start_beating(portal, machine)
    kept = portal.state.run("t2", "import time; time.sleep(600)", keep_on_fence=True)
    eventually(lambda: "running" in portal.state.kinds(kept))
    processes, others = machine.processes(key), machine.processes(kept)
    portal.stop()
    eventually(lambda: not any(is_alive(pid) for pid in processes), within_s=6)
    portal.start()
    end = eventually(lambda: portal.state.end_of(key), within_s=30)
    assert end.reason == "fenced"
    assert all(is_alive(pid) for pid in others)


@pytest.mark.thorough
def test_tasks_are_fenced_also_when_the_agent_is_dead(
    portal: FakePortal, make_machine: Callable[..., Machine]
) -> None:
    portal.state.lease_s = 2.0
    machine = make_machine().start().connected()
    key = start_beating(portal, machine)
    processes = machine.processes(key)
    machine.kill()
    eventually(lambda: not any(is_alive(pid) for pid in processes), within_s=6)
    machine.start()
    assert eventually(lambda: portal.state.end_of(key)).reason == "fenced"


@pytest.mark.thorough
def test_a_node_frozen_past_its_lease_ends_its_tasks_at_once_when_it_thaws(
    portal: FakePortal, make_machine: Callable[..., Machine]
) -> None:
    portal.state.lease_s = 1.5
    machine = make_machine().start().connected()
    key = start_beating(portal, machine)
    assert machine.agent is not None
    everything = [machine.agent.pid, *machine.processes(key)]
    for pid in everything:
        os.kill(pid, signal.SIGSTOP)
    before = len(beats_of(machine))
    always(lambda: len(beats_of(machine)) == before, for_s=2.0)
    for pid in everything:
        with suppress(ProcessLookupError):  # the agent has thawed first, and ended it
            os.kill(pid, signal.SIGCONT)
    eventually(lambda: not any(is_alive(pid) for pid in everything[1:]), within_s=10)
    assert len(beats_of(machine)) - before <= 25
    assert eventually(lambda: portal.state.end_of(key)).reason == "fenced"


@pytest.mark.thorough
def test_the_portal_can_fence_a_task_by_a_heartbeat(portal: FakePortal, machine: Machine) -> None:
    key = start_beating(portal, machine)
    processes = machine.processes(key)
    portal.state.fenced = [TaskKey(task_id=key[0], epoch=key[1])]
    eventually(lambda: not any(is_alive(pid) for pid in processes))
