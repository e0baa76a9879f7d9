"""The life of a workload: what agents report, what people ask, what time brings."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from portal.compute.models import Node
from portal.compute.services.nodes import drain_node
from portal.core import clock
from portal.core.errors import Conflict, InvalidInput
from portal.workloads.lifecycle import ENDS, MOVES, ForbiddenTransition, check_move
from portal.workloads.models import Lease, Workload
from portal.workloads.ports import (
    AdmissionDeferred,
    AdmissionGranted,
    AdmissionRequest,
    AdmitEverything,
    Kind,
    register_admission,
    register_kind,
)
from portal.workloads.reconciler import reconcile
from portal.workloads.retries import RetryRule
from portal.workloads.scheduling import run_passes
from portal.workloads.services.cancellation import requeue_workload, stop_workload
from slipway.schemas.workloads import WorkloadState
from tests.personas import Personas
from tests.portal.workloads.machines import (
    Machine,
    after,
    finish,
    leases_of,
    make_machine,
    make_tier,
    run,
    send_report,
    state_of,
    states_of,
    submit,
    unix_ms,
)

pytestmark = pytest.mark.postgres


def story_of(workload: Workload) -> list[str]:
    return list(workload.events.order_by("pk").values_list("kind", flat=True))


def start(people: Personas, machine: Machine | None = None, **changes: object) -> Workload:
    """Submit a job, place it, let it run, and let its node say so."""
    machine = machine or make_machine(cpus=8)
    tier = changes.pop("tier", None) or make_tier()
    job = submit(people.vision, people.bob, tier, **changes)  # type: ignore[arg-type]
    run_passes()
    run(job)
    machine.running |= {(lease.task_id, lease.epoch) for lease in leases_of(job)}
    return job


def test_a_job_runs_from_submit_to_success(people: Personas) -> None:
    job = start(people)
    assert job.state == "running"
    assert job.started_at is not None
    finish(job, exit_code=0)
    assert (job.state, job.reason, job.exit_code) == ("succeeded", "completed", 0)
    assert story_of(job)[:4] == ["submitted", "admitted", "queued", "placed"]
    assert story_of(job)[-2:] == ["task_ended", "succeeded"]
    node = Node.objects.get()
    assert (node.used_cpu_millis, node.tasks) == (0, 0)


def test_the_table_of_moves_lets_nothing_leave_an_end_but_what_is_resumed() -> None:
    assert set(MOVES) == set(WorkloadState)
    for end in ENDS:
        assert end.is_final
        resumed = {WorkloadState.QUEUED} if end == WorkloadState.STOPPED else set()
        assert MOVES[end] == resumed
    with pytest.raises(ForbiddenTransition):
        check_move(WorkloadState.SUCCEEDED, WorkloadState.QUEUED)


def test_a_gang_runs_when_all_of_it_runs_and_succeeds_when_all_of_it_has(
    people: Personas,
) -> None:
    make_machine(cpus=8)
    job = submit(people.vision, people.bob, make_tier(), nodes=2)
    run_passes()
    first, second = leases_of(job)
    send_report(first, "running", 1)
    assert state_of(job) == "placed"
    send_report(second, "running", 1)
    assert state_of(job) == "running"
    send_report(first, "ended", 2, exit_code=0)
    assert state_of(job) == "running"
    send_report(second, "ended", 2, exit_code=0)
    assert state_of(job) == "succeeded"


def test_one_failed_task_stops_the_others_and_names_the_cause(people: Personas) -> None:
    machine = make_machine(cpus=8)
    job = start(people, machine, nodes=3)
    first, second, third = leases_of(job)
    version = Node.objects.get().desired_version
    send_report(second, "ended", 3, reason="exit", exit_code=1, message="ValueError: bad rate")
    assert (state_of(job), job.plan) == ("stopping", "judge")
    assert Node.objects.get().desired_version > version
    # What a peer shows when it loses its neighbour comes later and explains less.
    send_report(first, "ended", 3, reason="exit", exit_code=1, at_unix_ms=unix_ms(after(3)))
    assert state_of(job) == "stopping"
    send_report(third, "ended", 3, reason="peer_failed")
    assert state_of(job) == "failed"
    assert job.reason_text == "task 1 ended: ValueError: bad rate"
    assert job.exit_code == 1


def test_an_error_of_the_script_is_not_tried_again(people: Personas) -> None:
    job = start(people, max_attempts=5)
    finish(job, "exit", exit_code=1, message="ValueError: bad rate")
    assert (job.state, job.reason, job.epoch) == ("failed", "exit", 1)
    assert job.next_step.startswith("Read the last lines of the log")


def test_a_killed_rank_is_tried_again_as_often_as_was_allowed(people: Personas) -> None:
    job = start(people, max_attempts=3)
    for epoch in (1, 2):
        assert job.epoch == epoch
        finish(job, "signal")
        assert job.state == "queued"
        run_passes()
        run(job)
    finish(job, "signal")
    assert (job.state, job.failures) == ("failed", 3)
    assert job.reason_text.endswith("(after 3 attempts)")
    assert Lease.objects.filter(workload=job).count() == 3


def test_a_silent_node_loses_its_leases_as_of_when_they_ran_out(people: Personas) -> None:
    dead = make_machine("dead", cpus=8)
    job = start(people, dead)
    (lease,) = leases_of(job)
    began = clock.now()
    with clock.frozen(began + timedelta(seconds=59)):
        reconcile()
        assert state_of(job) == "running"
    make_machine("spare", cpus=8)
    with clock.frozen(began + timedelta(seconds=75)):
        Node.objects.filter(name="spare").update(last_seen_at=clock.now())
        reconcile()
        lease.refresh_from_db()
        assert (lease.reason, lease.ended_at) == ("node_lost", lease.expires_at)
        assert (state_of(job), job.losses, job.failures) == ("queued", 1, 0)
        run_passes()
        assert [lease.node.name for lease in leases_of(job)] == ["spare"]


def test_a_kind_that_is_not_tried_again_is_lost_with_its_node(people: Personas) -> None:
    register_kind(Kind("app", "app", retry=RetryRule(on=frozenset())))
    job = start(people, kind="app")
    with clock.frozen(after(70)):
        reconcile()
    assert (state_of(job), job.reason) == ("lost", "node_lost")


def test_a_failure_caused_by_a_lost_node_counts_as_that(people: Personas) -> None:
    """The peers of a rank on a dead machine fail first, with errors that look like their own."""
    alive, dead = make_machine("alive", cpus=2), make_machine("dead", cpus=2)
    job = start(people, alive, tier=make_tier("two", cpus=2), nodes=2)
    here = next(lease for lease in leases_of(job) if lease.node.name == "alive")
    send_report(here, "ended", 3, reason="exit", exit_code=1, message="connection reset by peer")
    assert state_of(job) == "stopping"
    with clock.frozen(after(70)):
        alive.beat()
        reconcile()
        assert (state_of(job), job.reason) == ("queued", "node_lost")
    assert dead.node.name == "dead"


def test_a_heartbeat_renews_what_runs_and_lets_the_rest_run_out(people: Personas) -> None:
    machine = make_machine(cpus=8)
    job = start(people, machine)
    with clock.frozen(after(50)):
        machine.beat()
    with clock.frozen(after(100)):
        reconcile()
        assert state_of(job) == "running"
        machine.running.clear()  # it came back from somewhere and knows nothing of the task
        machine.beat()
    with clock.frozen(after(111)):
        reconcile()
        assert state_of(job) == "queued"


def test_what_runs_without_a_lease_is_fenced(people: Personas) -> None:
    machine = make_machine(cpus=8)
    job = start(people, machine)
    (lease,) = leases_of(job)
    finish(job, "signal")
    answer = machine.beat()
    assert [(key.task_id, key.epoch) for key in answer.fenced] == [(lease.task_id, 1)]
    assert answer.lease_s < 60


def test_reports_of_a_lost_lease_are_answered_stale(people: Personas) -> None:
    machine = make_machine(cpus=8)
    job = start(people, machine)
    (lease,) = leases_of(job)
    with clock.frozen(after(70)):
        reconcile()
        answer = send_report(lease, "ended", 3, reason="completed")
        assert [key.task_id for key in answer.stale] == [lease.task_id]
        assert state_of(job) == "queued"
        run_passes()
        assert state_of(job) == "queued"  # the node is silent
        machine.running.clear()
        machine.beat()
        run_passes()
        assert (state_of(job), job.epoch) == ("placed", 2)
        assert send_report(lease, "running", 4).stale


def test_a_repeated_or_late_report_changes_nothing(people: Personas) -> None:
    job = start(people)
    (lease,) = leases_of(job)
    for _ in range(2):
        send_report(lease, "progress", 3, step=10)
        send_report(lease, "starting", 1, message="late")
        send_report(lease, "progress", 4, step=5)
    lease.refresh_from_db()
    assert (state_of(job), lease.state, lease.step) == ("running", "running", 10)
    before = len(story_of(job))
    for _ in range(3):
        assert not send_report(lease, "ended", 5, reason="completed").stale
    assert len(story_of(job)) == before + 2  # the task's end and the workload's
    assert state_of(job) == "succeeded"


def test_another_node_cannot_speak_for_a_task(people: Personas) -> None:
    job = start(people)
    (lease,) = leases_of(job)
    stranger = make_machine("stranger")
    lease.node = stranger.node
    assert send_report(lease, "ended", 3, reason="completed").stale
    assert state_of(job) == "running"


@pytest.mark.parametrize("skew_s", [-86_400, -30, 0, 30, 86_400])
def test_the_end_is_when_the_runtime_says_in_our_time(people: Personas, skew_s: int) -> None:
    job = start(people)
    (lease,) = leases_of(job)
    ended = lease.granted_at + timedelta(seconds=20)
    with clock.frozen(lease.granted_at + timedelta(seconds=30)):
        shown = timedelta(seconds=skew_s)
        report = {"at_unix_ms": unix_ms(ended + shown), "reason": "completed"}
        send_report(lease, "ended", 3, sent=clock.now() + shown, **report)
    lease.refresh_from_db()
    assert lease.ended_at is not None
    assert abs(lease.ended_at - ended) < timedelta(milliseconds=5)


@pytest.mark.parametrize("claimed_s", [-10_000_000, 10_000_000])
def test_an_absurd_time_is_kept_between_the_grant_and_now(people: Personas, claimed_s: int) -> None:
    job = start(people)
    (lease,) = leases_of(job)
    claimed = unix_ms(after(claimed_s))
    send_report(lease, "ended", 3, at_unix_ms=claimed, reason="completed")
    lease.refresh_from_db()
    assert lease.ended_at is not None
    assert lease.granted_at <= lease.ended_at <= clock.now()


def test_a_start_that_failed_has_cost_nothing(people: Personas) -> None:
    make_machine()
    job = submit(people.vision, people.bob, make_tier(), max_attempts=1)
    run_passes()
    (lease,) = leases_of(job)
    with clock.frozen(after(20)):
        send_report(lease, "starting", 1, message="building")
        send_report(lease, "ended", 2, reason="environment_failed", message="No such package.")
    lease.refresh_from_db()
    assert lease.ended_at == lease.granted_at
    assert (state_of(job), job.reason_text) == ("failed", "No such package.")


def test_a_node_that_never_begins_gives_the_task_back(people: Personas) -> None:
    machine = make_machine()
    job = submit(people.vision, people.bob, make_tier(), max_attempts=2)
    run_passes()
    for seconds in range(50, 250, 50):
        with clock.frozen(after(seconds)):
            machine.beat()
            reconcile()
    assert (state_of(job), job.reason) == ("queued", "start_failed")


def test_the_maximum_lifetime_ends_a_workload(people: Personas) -> None:
    machine = make_machine(cpus=8)
    job = start(people, machine, max_lifetime_s=100)
    for seconds in (40, 80):
        with clock.frozen(after(seconds)):
            machine.beat()
            reconcile()
            assert state_of(job) == "running"
    with clock.frozen(after(101)):
        reconcile()
        assert (state_of(job), job.reason) == ("stopping", "max_lifetime")
        finish(job, "max_lifetime")
    assert (state_of(job), job.reason) == ("stopped", "max_lifetime")


def test_draining_a_node_moves_jobs_and_waits_for_the_rest(people: Personas) -> None:
    machine = make_machine("full", cpus=8)
    job = start(people, machine)
    notebook = start(people, machine, kind="notebook", tier=job.tier)
    drain_node(node=machine.node, reason="new kernel")
    reconcile()
    assert states_of(job, notebook) == ["stopping", "running"]
    finish(job, "preempted")
    assert (state_of(job), job.failures) == ("queued", 0)
    make_machine("other", cpus=8)
    run_passes()
    assert [lease.node.name for lease in leases_of(job)] == ["other"]


def test_stopping_works_in_every_state_and_twice(people: Personas) -> None:
    make_machine(cpus=1)
    tier = make_tier()
    runs, waits = (submit(people.vision, people.bob, tier) for _ in range(2))
    run_passes()
    for _ in range(2):
        stop_workload(workload=waits, by=people.bob, message="No longer needed.")
        stop_workload(workload=runs, by=people.bob)
    assert states_of(runs, waits) == ["stopping", "stopped"]
    assert waits.reason_text == "No longer needed."
    finish(runs, "user")
    stop_workload(workload=runs, by=people.bob)
    assert (state_of(runs), runs.reason) == ("stopped", "user")
    assert story_of(runs).count("stopping") == 1


def test_a_job_that_finished_before_it_could_be_stopped_has_succeeded(people: Personas) -> None:
    job = start(people)
    stop_workload(workload=job, by=people.bob)
    finish(job, "completed", exit_code=0)
    assert state_of(job) == "succeeded"


def test_asking_to_end_wins_over_running_again(people: Personas) -> None:
    job = start(people)
    requeue_workload(workload=job, by=people.bob)
    assert (state_of(job), job.plan) == ("stopping", "requeue")
    stop_workload(workload=job, by=people.bob)
    assert (state_of(job), job.plan) == ("stopping", "stop")
    finish(job, "user")
    assert state_of(job) == "stopped"
    with pytest.raises(Conflict):
        requeue_workload(workload=job, by=people.bob)


def test_a_requeued_workload_keeps_its_place_before_younger_ones(people: Personas) -> None:
    machine = make_machine(cpus=1)
    job = start(people, machine)
    younger = submit(people.vision, people.bob, job.tier)
    requeue_workload(workload=job, by=people.bob)
    finish(job, "preempted")
    run_passes()
    assert states_of(job, younger) == ["placed", "queued"]


def test_a_replica_serves_on_while_the_portal_was_away(people: Personas) -> None:
    """Everything was silent, so it was not the node's fault; one silent node alone is."""
    serving, other = make_machine("serving"), make_machine("other", cpus=0.5)
    replica = start(people, serving, kind="replica")
    with clock.frozen(after(300)):
        reconcile()
        assert state_of(replica) == "running"
        serving.beat()
        assert state_of(replica) == "running"
    for seconds in range(310, 400, 10):
        with clock.frozen(after(seconds)):
            other.beat()
            reconcile()
    assert (state_of(replica), replica.reason) == ("queued", "node_lost")


def test_a_replica_its_own_node_knows_nothing_of_is_lost(people: Personas) -> None:
    serving = make_machine("serving")
    replica = start(people, serving, kind="replica")
    serving.running.clear()
    for seconds in range(10, 80, 10):
        with clock.frozen(after(seconds)):
            serving.beat()
            reconcile()
    assert (state_of(replica), replica.reason) == ("queued", "node_lost")


def test_the_same_key_submits_once(people: Personas) -> None:
    make_machine()
    tier = make_tier()
    first, second = (
        submit(people.vision, people.bob, tier, key="k", name="same") for _ in range(2)
    )
    assert first.pk == second.pk
    with pytest.raises(Conflict, match="submit something else"):
        submit(people.vision, people.bob, tier, key="k", nodes=2)
    make_machine("b")
    assert submit(people.other, people.charlie, tier, key="k").pk != first.pk


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("nodes", {"nodes": 0}),
        ("procs", {"procs": 0}),
        ("procs", {"nodes": 1024, "procs": 256}),
        ("priority", {"priority": 101}),
        ("max_lifetime_s", {"max_lifetime_s": 0}),
        ("name", {"name": "a\x00b"}),
        ("kind", {"kind": "teapot"}),
        ("environment", {"environment": "0" * 64}),
        ("snapshot", {"snapshot": "0" * 64}),
        ("snapshot", {"snapshot": "../../etc"}),
        ("key", {"key": "a b"}),
    ],
)
def test_bad_input_is_refused_before_anything_queues(
    people: Personas, field: str, changes: dict[str, object]
) -> None:
    make_machine()
    with pytest.raises(InvalidInput) as refused:
        submit(people.vision, people.bob, make_tier(), **changes)
    assert refused.value.field == field
    assert not Workload.objects.exists()


class _Gate:
    """An admission that holds until it is opened, or refuses for good."""

    def __init__(self) -> None:
        self.is_open = False
        self.refuses = False

    def decide(self, request: AdmissionRequest) -> AdmissionGranted | AdmissionDeferred:
        if self.refuses:
            raise Conflict("The budget is gone.", next_step="Raise it.")
        return AdmissionGranted() if self.is_open else AdmissionDeferred("the budget is used up")


@pytest.fixture
def gate() -> Iterator[_Gate]:
    made = _Gate()
    register_admission(made)
    yield made
    register_admission(AdmitEverything())


def test_a_held_workload_queues_when_it_is_let(people: Personas, gate: _Gate) -> None:
    make_machine()
    job = submit(people.vision, people.bob, make_tier())
    reconcile()
    assert (state_of(job), job.hold) == ("submitted", "the budget is used up")
    gate.is_open = True
    reconcile()
    run_passes()
    assert state_of(job) == "placed"


def test_a_held_workload_that_is_refused_ends_with_the_reason(
    people: Personas, gate: _Gate
) -> None:
    make_machine()
    job = submit(people.vision, people.bob, make_tier())
    gate.refuses = True
    reconcile()
    assert (state_of(job), job.reason, job.next_step) == ("stopped", "budget", "Raise it.")


def test_a_refusal_at_submit_leaves_nothing_behind(people: Personas, gate: _Gate) -> None:
    make_machine()
    gate.refuses = True
    with pytest.raises(Conflict, match="budget is gone"):
        submit(people.vision, people.bob, make_tier())
    assert not Workload.objects.exists()
