"""Failed jobs on several nodes whose tasks are kept: which ones, their verdict, and their end."""

from datetime import timedelta
from typing import Any

import pytest

from portal.core import clock
from portal.workloads.models import Lease, Workload, WorkloadEvent
from portal.workloads.reconciler import reconcile
from portal.workloads.scheduling import run_passes
from tests.personas import Api, Personas, json_of
from tests.portal.training.jobs import made_job, place
from tests.portal.workloads.machines import (
    Machine,
    leases_of,
    make_machine,
    make_tier,
    run,
    send_report,
)

pytestmark = pytest.mark.postgres

_MESSAGE = "Rank 3 exited with status 7: ValueError: loss is NaN"
_OWN: dict[str, Any] = {
    "reason": "exit",
    "message": _MESSAGE,
    "exit_code": 7,
    "ranks": [{"rank": 2, "signal": 15}, {"rank": 3, "exit_code": 7}],
    "log_tail": "ValueError: loss is NaN",
}
_PEER: dict[str, Any] = {
    "reason": "peer_failed",
    "message": "Stopped because another task of the job has failed.",
    "ranks": [{"rank": 0, "signal": 15}, {"rank": 1, "signal": 15}],
}


@pytest.fixture
def other(machine: Machine) -> Machine:
    """A second node, and a tier of which each of the two holds one task."""
    make_tier("wide", cpus=3, nano_usd_per_hour=3_600_000_000)
    return make_machine("lab-2")


@pytest.fixture
def job(bob: Api, machine: Machine, other: Machine) -> Workload:
    """A job of Bob's with two ranks on each of two nodes, which runs."""
    job = place(made_job(bob, nodes=2, procs=2, tier="wide", keep_failed_minutes=15))
    run(job)
    job.refresh_from_db()
    return job


def _report(job: Workload, index: int, kind: str, sequence: int, **fields: Any) -> None:
    leases = {lease.index: lease for lease in leases_of(job)}
    send_report(leases[index], kind, sequence, **fields)
    job.refresh_from_db()


def _machine_of(job: Workload, index: int, *machines: Machine) -> Machine:
    node = next(lease.node_id for lease in leases_of(job) if lease.index == index)
    return next(machine for machine in machines if machine.node.pk == node)


def _task(machine: Machine) -> dict[str, Any]:
    (task,) = json_of(machine.call("GET", "desired"))["tasks"]
    assert isinstance(task, dict)
    return task


def _shown(bob: Api, job: Workload) -> dict[str, Any]:
    workload = json_of(bob.get(f"projects/vision/jobs/{job.pk}"))["workload"]
    assert isinstance(workload, dict)
    return workload


def test_the_others_of_a_gang_are_kept_with_the_failed_task(
    bob: Api, job: Workload, machine: Machine, other: Machine
) -> None:
    first, second = (_machine_of(job, index, machine, other) for index in (0, 1))
    assert _task(first)["keep"] is False
    _report(job, 1, "failed", 3, **_OWN)
    assert job.is_kept
    until = job.kept_until
    stopped = _task(first)
    assert (stopped["action"], stopped["keep"]) == ("stop", True)
    assert stopped["stop_reason"] == "peer_failed"
    assert _task(second)["action"] == "start"
    _report(job, 0, "failed", 3, **_PEER)
    assert _task(first)["action"] == "start"
    assert (job.kept_until, job.reason, job.exit_code) == (until, "exit", 7)
    shown = _shown(bob, job)
    assert "task 1 ended: Rank 3 exited with status 7" in shown["explanation"]
    assert "(costs $7.20 per hour for 2 nodes)" in shown["explanation"]
    # The failed rank is the default, and any other may be named.
    shells = f"projects/vision/jobs/{job.pk}/shells"
    assert json_of(bob.post(shells, {}))["rank"] == 3
    assert json_of(bob.post(shells, {"rank": 0}))["node"] == first.node.name
    assert bob.post(shells, {"rank": 4}).status_code == 422


def test_the_end_of_the_failed_task_ends_the_others_as_failed(
    job: Workload, machine: Machine, other: Machine
) -> None:
    _report(job, 1, "failed", 3, **_OWN)
    _report(job, 0, "failed", 3, **_PEER)
    with clock.frozen(clock.now() + timedelta(minutes=15)):
        _report(job, 1, "ended", 4, **_OWN, kept_end="Its time is over.")
        assert job.state == "stopping"
        stopped = _task(_machine_of(job, 0, machine, other))
        assert (stopped["action"], stopped["keep"]) == ("stop", False)
        _report(job, 0, "ended", 4, **_PEER, kept_end="Stopped on request.")
    assert (job.state, job.reason, job.exit_code) == ("failed", "exit", 7)
    assert job.reason_text == f"task 1 ended: {_MESSAGE}"
    events = WorkloadEvent.objects.filter(workload=job, kind="task_ended").order_by("pk")
    assert [event.message.partition(". ")[0] for event in events] == [
        "Task 1 is no longer kept: Its time is over",
        "Task 0 is no longer kept: Stopped on request",
    ]


def test_a_task_that_lost_its_peer_reports_first_and_is_not_the_cause(job: Workload) -> None:
    _report(job, 0, "failed", 3, **{**_PEER, "message": "Rank 0 lost its connection."})
    assert (job.is_kept, job.reason) == (True, "peer_failed")
    _report(job, 1, "failed", 3, **_OWN)
    assert (job.reason, job.exit_code, job.log_tail) == ("exit", 7, _OWN["log_tail"])


def test_a_failure_comes_before_the_start_of_the_others_is_reported(
    bob: Api, machine: Machine, other: Machine
) -> None:
    job = place(made_job(bob, nodes=2, procs=2, tier="wide", keep_failed_minutes=15))
    _report(job, 1, "running", 1)
    _report(job, 1, "failed", 2, **_OWN)
    assert (job.state, job.is_kept) == ("running", True)
    _report(job, 0, "running", 1)
    _report(job, 0, "failed", 2, **_PEER)
    assert (job.state, job.reason) == ("running", "exit")


def _lose(job: Workload, index: int, *machines: Machine) -> None:
    """Let the node of a task be silent until its lease has expired."""
    lost = _machine_of(job, index, *machines)
    for machine in machines:
        if machine is not lost:
            machine.running = {(lease.task_id, 1) for lease in leases_of(job)}
            machine.beat()
    Lease.objects.filter(workload=job, node=lost.node).update(
        expires_at=clock.now() - timedelta(seconds=1)
    )
    reconcile()
    job.refresh_from_db()


@pytest.mark.parametrize("is_kept_itself", [True, False])
def test_the_loss_of_another_node_leaves_the_failed_task(
    bob: Api, job: Workload, machine: Machine, other: Machine, is_kept_itself: bool
) -> None:
    _report(job, 1, "failed", 3, **_OWN)
    if is_kept_itself:
        _report(job, 0, "failed", 3, **_PEER)
    _lose(job, 0, machine, other)
    assert (job.state, job.is_kept) == ("running", True)
    assert "(costs $3.60 per hour" in _shown(bob, job)["explanation"]
    assert bob.post(f"projects/vision/jobs/{job.pk}/shells", {"rank": 0}).status_code == 409
    _report(job, 1, "ended", 4, **_OWN, kept_end="Its time is over.")
    assert (job.state, job.reason, job.epoch) == ("failed", "exit", 1)


def test_a_lost_node_that_explains_the_failure_starts_it_again(
    job: Workload, machine: Machine, other: Machine
) -> None:
    _report(job, 0, "failed", 3, **{**_PEER, "message": "Rank 0 lost its connection."})
    _lose(job, 1, machine, other)
    assert (job.state, job.plan) == ("stopping", "judge")
    _report(job, 0, "ended", 4, **_PEER, kept_end="Stopped on request.")
    assert (job.state, job.losses, job.kept_until) == ("queued", 1, None)
    run_passes()


def test_a_person_ends_it(people: Personas, bob: Api, job: Workload) -> None:
    _report(job, 1, "failed", 3, **_OWN)
    _report(job, 0, "failed", 3, **_PEER)
    assert bob.post(f"projects/vision/jobs/{job.pk}/cancel").status_code == 200
    for index in (0, 1):
        fields = _OWN if index else _PEER
        _report(job, index, "ended", 4, **fields, kept_end="Stopped on request.")
    assert (job.state, job.reason) == ("failed", "exit")


@pytest.mark.parametrize("attempts", [1, 2])
def test_a_gang_in_which_all_have_lost_each_other_is_tried_again_if_it_may(
    bob: Api, machine: Machine, other: Machine, attempts: int
) -> None:
    body = {"nodes": 2, "procs": 2, "tier": "wide", "keep_failed_minutes": 15}
    job = place(made_job(bob, **body, max_attempts=attempts))
    run(job)
    lost = {**_PEER, "message": "Rank 0 lost its connection."}
    _report(job, 0, "failed", 3, **lost)
    assert (job.state, job.is_kept) == ("running", True)
    _report(job, 1, "failed", 3, **lost)
    assert (job.state, job.is_kept) == ("stopping" if attempts == 2 else "running", True)
    for index in (0, 1):
        _report(job, index, "ended", 4, **lost, kept_end="Stopped on request.")
    expected = ("queued", True) if attempts == 2 else ("failed", False)
    assert (job.state, job.kept_until is None) == expected


def test_a_victim_that_reports_first_does_not_hide_a_failure_that_is_tried_again(
    bob: Api, machine: Machine, other: Machine
) -> None:
    body = {"nodes": 2, "procs": 2, "tier": "wide", "keep_failed_minutes": 15, "max_attempts": 2}
    job = place(made_job(bob, **body))
    run(job)
    _report(job, 0, "failed", 3, **{**_PEER, "message": "Rank 0 lost its connection."})
    _report(job, 1, "failed", 3, reason="signal", message="Rank 3 was killed by SIGSEGV.")
    assert job.state == "stopping"


def test_a_gang_that_is_tried_again_is_not_kept(bob: Api, machine: Machine, other: Machine) -> None:
    body = {"nodes": 2, "procs": 2, "tier": "wide", "keep_failed_minutes": 15, "max_attempts": 2}
    job = place(made_job(bob, **body))
    run(job)
    crash = {"reason": "signal", "message": "Rank 3 was killed by SIGSEGV."}
    _report(job, 1, "failed", 3, **crash)
    assert (job.state, job.kept_until) == ("stopping", None)
