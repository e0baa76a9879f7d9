"""Preemptible work is moved for other work, never more of it than that needs, and then goes on."""

from typing import Any

import pytest

from portal.accounts.models import Project, User
from portal.compute.models import Node, Tier
from portal.compute.services.nodes import cordon_node
from portal.compute.services.quotas import set_quota
from portal.core.errors import InvalidInput
from portal.workloads.explanations import Explainer
from portal.workloads.models import Lease, Preemption, Share, Workload
from portal.workloads.ports import (
    AdmissionDeferred,
    AdmissionGranted,
    AdmissionRequest,
    AdmitEverything,
    admission,
    register_admission,
)
from portal.workloads.preemption import UNDISTURBED
from portal.workloads.services.cancellation import stop_workload
from portal.workloads.tasks import schedule
from tests.personas import Personas
from tests.portal.workloads.machines import (
    finish,
    leases_of,
    make_machine,
    make_tier,
    run,
    state_of,
    states_of,
    submit,
)

pytestmark = pytest.mark.postgres


def settle() -> None:
    """Do what the control worker does after every change."""
    schedule()


def preemptible(project: Project, by: User, tier: Tier, **changes: Any) -> Workload:
    """Submit a preemptible job, place it and let it run."""
    job = submit(project, by, tier, is_preemptible=True, **changes)
    settle()
    run(job)
    return job


def move_back(job: Workload, **since: Any) -> None:
    """Let a running workload have been placed earlier."""
    placed = job.placed_at
    assert placed is not None
    Workload.objects.filter(pk=job.pk).update(placed_at=placed - since["by"])
    job.refresh_from_db()


def nodes_of(workload: Workload) -> set[str]:
    return {lease.node.name for lease in leases_of(workload)}


def test_a_preemptible_job_makes_way_and_goes_on_afterwards(people: Personas) -> None:
    make_machine(cpus=1)
    tier = make_tier()
    moved = preemptible(people.vision, people.bob, tier, name="cheap")
    urgent = submit(people.other, people.charlie, tier, name="urgent")
    settle()
    assert (state_of(moved), moved.plan, moved.reason) == ("stopping", "requeue", "preempted")
    assert state_of(urgent) == "queued"
    settle()  # nothing is asked twice
    assert Preemption.objects.count() == 1
    finish(moved, "preempted")
    assert (state_of(moved), moved.failures, moved.losses) == ("queued", 0, 0)
    settle()
    assert (state_of(urgent), state_of(moved)) == ("placed", "queued")
    assert urgent.held_since is None
    run(urgent)
    finish(urgent)
    settle()
    assert (state_of(moved), moved.epoch, moved.preemptions) == ("placed", 2, 1)
    move = Preemption.objects.get()
    assert (move.workload, move.attempt, move.beneficiary) == (moved, 1, urgent)


def test_what_is_not_preemptible_is_not_moved_and_moves_no_other_of_its_kind(
    people: Personas,
) -> None:
    make_machine(cpus=1)
    tier = make_tier()
    submit(people.vision, people.bob, tier)
    settle()
    first, second = Workload.objects.get(), submit(people.other, people.charlie, tier)
    settle()
    assert (state_of(first), state_of(second)) == ("placed", "queued")


def test_preemptible_work_never_moves_preemptible_work(people: Personas) -> None:
    make_machine(cpus=1)
    tier = make_tier()
    running = preemptible(people.vision, people.bob, tier)
    submit(people.other, people.charlie, tier, is_preemptible=True)
    settle()
    assert state_of(running) == "running"


def test_the_fewest_are_moved_and_of_equals_those_that_lose_least(people: Personas) -> None:
    make_machine(cpus=4)
    quarter, half = make_tier("quarter", cpus=1), make_tier("half", cpus=2)
    small = [preemptible(people.vision, people.bob, quarter) for _ in range(2)]
    large = preemptible(people.vision, people.bob, half)
    urgent = submit(people.other, people.charlie, half)
    settle()
    assert states_of(*small, large) == ["running", "running", "stopping"]
    assert state_of(urgent) == "queued"


def test_the_youngest_since_its_last_checkpoint_or_start_is_moved(people: Personas) -> None:
    make_machine(cpus=3)
    tier = make_tier()
    jobs = [preemptible(people.vision, people.bob, tier) for _ in range(3)]
    for job, minutes in zip(jobs, (30, 20, 40), strict=True):
        move_back(job, by=UNDISTURBED / 10 * minutes)
    submit(people.other, people.charlie, tier)
    settle()
    assert states_of(*jobs) == ["running", "stopping", "running"]


def test_nothing_is_moved_if_that_would_not_help(people: Personas) -> None:
    make_machine(cpus=2)
    small, large = make_tier("small", cpus=1), make_tier("large", cpus=2)
    stays = submit(people.vision, people.bob, small)
    moved = preemptible(people.vision, people.bob, small)
    waiting = submit(people.other, people.charlie, large)
    settle()
    assert states_of(stays, moved) == ["placed", "running"]
    assert "if that frees enough" in Explainer(people.charlie).explain(waiting)


def test_nothing_is_moved_for_what_a_quota_holds_back(people: Personas) -> None:
    make_machine(cpus=2)
    tier = make_tier()
    set_quota(group=people.other, running=1)
    submit(people.other, people.charlie, tier)
    settle()
    moved = preemptible(people.vision, people.bob, tier)
    submit(people.other, people.charlie, tier)
    settle()
    assert state_of(moved) == "running"


def test_nothing_is_moved_for_what_fits_once_something_else_has_stopped(people: Personas) -> None:
    make_machine(cpus=2)
    tier = make_tier()
    stops = submit(people.vision, people.bob, tier)
    settle()
    run(stops)
    stays = preemptible(people.vision, people.bob, tier)
    stop_workload(workload=stops)
    submit(people.other, people.charlie, tier)
    settle()
    assert states_of(stops, stays) == ["stopping", "running"]


def test_a_gang_is_moved_whole(people: Personas) -> None:
    for name in ("a", "b"):
        make_machine(name, cpus=1)
    tier = make_tier()
    gang = preemptible(people.vision, people.bob, tier, nodes=2)
    urgent = submit(people.other, people.charlie, tier)
    settle()
    assert state_of(gang) == "stopping"
    finish(gang, "preempted")
    settle()
    assert (state_of(gang), state_of(urgent)) == ("queued", "placed")


def test_a_gang_moves_just_as_many_as_it_needs(people: Personas) -> None:
    for name in "abcd":
        make_machine(name, cpus=1)
    tier = make_tier()
    jobs = [preemptible(people.vision, people.bob, tier) for _ in range(3)]
    urgent = submit(people.other, people.charlie, tier, nodes=3)
    settle()
    assert sorted(states_of(*jobs)) == ["running", "stopping", "stopping"]
    for job in jobs:
        if job.state == "stopping":
            finish(job, "preempted")
    settle()
    assert state_of(urgent) == "placed"
    assert len(nodes_of(urgent)) == 3


def test_what_becomes_free_is_held_for_the_one_that_others_were_moved_for(
    people: Personas,
) -> None:
    make_machine("pair", cpus=2)
    one, two = make_tier("one", cpus=1), make_tier("two", cpus=2)
    jobs = [preemptible(people.vision, people.bob, one) for _ in range(2)]
    urgent = submit(people.other, people.charlie, two)
    settle()
    assert states_of(*jobs) == ["stopping", "stopping"]
    finish(jobs[0], "preempted")
    # A short one would end long before. It is not let in, and neither is the one that was moved.
    short = submit(people.vision, people.bob, one, max_lifetime_s=1, priority=50)
    settle()
    assert (state_of(short), state_of(jobs[0]), state_of(urgent)) == ("queued", "queued", "queued")
    finish(jobs[1], "preempted")
    settle()
    assert state_of(urgent) == "placed"


def test_a_moved_job_is_left_alone_for_a_while(people: Personas) -> None:
    make_machine(cpus=1)
    tier = make_tier()
    moved = preemptible(people.vision, people.bob, tier)
    for _ in range(2):
        urgent = submit(people.other, people.charlie, tier)
        settle()
        if moved.epoch == 1:
            finish(moved, "preempted")
            settle()
            run(urgent)
            finish(urgent)
            settle()
            run(moved)
    assert (state_of(moved), moved.epoch) == ("running", 2)
    assert moved.placed_at is not None
    until = moved.placed_at + UNDISTURBED
    assert f"left undisturbed until {until:%H:%M} UTC" in Explainer(people.charlie).explain(urgent)
    move_back(moved, by=UNDISTURBED)
    settle()
    assert (state_of(moved), moved.preemptions) == ("stopping", 2)


def test_a_project_above_its_share_does_not_move_one_below_its_share(people: Personas) -> None:
    make_machine(cpus=2)
    tier = make_tier()
    moved = preemptible(people.vision, people.bob, tier)
    submit(people.other, people.charlie, tier)
    settle()
    Share.objects.filter(project=people.other).update(score=1e4)
    urgent = submit(people.other, people.charlie, tier)
    settle()
    assert (state_of(moved), state_of(urgent)) == ("running", "queued")
    assert "less than their fair share" in Explainer(people.charlie).explain(urgent)
    own = submit(people.vision, people.bob, tier)
    settle()
    assert (state_of(moved), state_of(own)) == ("stopping", "queued")


def test_the_work_of_a_project_above_its_share_goes_first(people: Personas) -> None:
    make_machine(cpus=3)
    tier = make_tier()
    poor = preemptible(people.vision, people.bob, tier)
    rich = preemptible(people.other, people.charlie, tier)
    Share.objects.filter(project=people.other).update(score=1e4)
    move_back(rich, by=UNDISTURBED)
    submit(people.vision, people.bob, make_tier("two", cpus=2))
    settle()
    assert states_of(poor, rich) == ["running", "stopping"]


def test_a_cancelled_beneficiary_leaves_the_victim_to_stop_and_go_on(people: Personas) -> None:
    make_machine(cpus=1)
    tier = make_tier()
    moved = preemptible(people.vision, people.bob, tier)
    urgent = submit(people.other, people.charlie, tier)
    settle()
    stop_workload(workload=urgent)
    settle()
    assert state_of(moved) == "stopping"
    finish(moved, "preempted")
    settle()
    assert (state_of(moved), moved.epoch) == ("placed", 2)


def test_a_person_may_still_stop_what_is_moved(people: Personas) -> None:
    make_machine(cpus=1)
    tier = make_tier()
    moved = preemptible(people.vision, people.bob, tier)
    submit(people.other, people.charlie, tier)
    settle()
    stop_workload(workload=moved, by=people.bob)
    finish(moved, "preempted")
    assert (state_of(moved), moved.reason) == ("stopped", "user")


def test_a_job_that_ends_while_it_is_moved_has_succeeded(people: Personas) -> None:
    make_machine(cpus=1)
    tier = make_tier()
    moved = preemptible(people.vision, people.bob, tier)
    submit(people.other, people.charlie, tier)
    settle()
    finish(moved)
    assert (state_of(moved), moved.reason) == ("succeeded", "completed")


def test_an_error_on_the_way_out_is_no_failed_attempt(people: Personas) -> None:
    make_machine(cpus=1)
    tier = make_tier()
    moved = preemptible(people.vision, people.bob, tier)
    submit(people.other, people.charlie, tier)
    settle()
    finish(moved, "exit", exit_code=143)
    assert (state_of(moved), moved.failures) == ("queued", 0)


def test_a_hold_ends_when_its_node_takes_no_more_work(people: Personas) -> None:
    machine = make_machine("first", cpus=1)
    tier = make_tier()
    moved = preemptible(people.vision, people.bob, tier)
    urgent = submit(people.other, people.charlie, tier)
    settle()
    cordon_node(node=machine.node, reason="disk")
    finish(moved, "preempted")
    settle()
    assert (state_of(urgent), urgent.held_since, urgent.held_nodes) == ("queued", None, [])
    make_machine("second", cpus=1)
    settle()
    assert nodes_of(urgent) == {"second"}


def test_cards_of_the_right_model_are_freed(people: Personas) -> None:
    make_machine("old", cpus=8, gpus=1, gpu_model="A100")
    make_machine("new", cpus=8, gpus=1, gpu_model="H100")
    old = make_tier("old", gpus=1, gpu_model="A100")
    new = make_tier("new", gpus=1, gpu_model="H100")
    jobs = [preemptible(people.vision, people.bob, tier) for tier in (old, new)]
    urgent = submit(people.other, people.charlie, new)
    settle()
    assert states_of(*jobs) == ["running", "stopping"]
    finish(jobs[1], "preempted")
    settle()
    assert nodes_of(urgent) == {"new"}
    assert Lease.objects.open().get(workload=urgent).gpu_indices == [0]


def test_a_node_that_cannot_isolate_projects_is_freed_of_the_other_project(
    people: Personas,
) -> None:
    shared = {"backend": "process", "level": "shared", "features": []}
    make_machine("shared", cpus=4, isolation=[shared])
    tier = make_tier()
    jobs = [preemptible(people.vision, people.bob, tier) for _ in range(2)]
    urgent = submit(people.other, people.charlie, tier)
    settle()
    assert states_of(*jobs) == ["stopping", "stopping"]
    for job in jobs:
        finish(job, "preempted")
    settle()
    assert states_of(urgent, *jobs) == ["placed", "queued", "queued"]
    assert Node.objects.get().tasks == 1


def test_what_was_moved_goes_back_to_its_files_where_that_is_possible(people: Personas) -> None:
    make_machine("first", cpus=1)
    tier = make_tier()
    moved = preemptible(people.vision, people.bob, tier)
    urgent = submit(people.other, people.charlie, tier)
    settle()
    finish(moved, "preempted")
    settle()
    run(urgent)
    finish(urgent)
    make_machine("a-second", cpus=1)
    settle()
    assert nodes_of(moved) == {"first"}


def test_what_is_not_preemptible_passes_preemptible_work_that_waits(people: Personas) -> None:
    for name in ("a", "b"):
        make_machine(name, cpus=1)
    tier = make_tier()
    stays = submit(people.vision, people.bob, tier)
    settle()
    gang = submit(people.other, people.charlie, tier, nodes=2, is_preemptible=True)
    cheap = submit(people.vision, people.bob, tier, is_preemptible=True)
    settle()
    assert states_of(stays, gang, cheap) == ["placed", "queued", "queued"]  # room for the gang
    urgent = submit(people.vision, people.bob, tier)
    settle()
    assert states_of(urgent, gang, cheap) == ["placed", "queued", "queued"]


def test_nothing_is_moved_for_what_a_budget_holds_back(people: Personas) -> None:
    class Later(AdmitEverything):
        def decide(self, request: AdmissionRequest) -> AdmissionGranted | AdmissionDeferred:
            is_held = request.project_id == people.other.pk
            return AdmissionDeferred("budget") if is_held else AdmissionGranted()

    make_machine(cpus=1)
    tier = make_tier()
    moved = preemptible(people.vision, people.bob, tier)
    before = admission()
    register_admission(Later())
    try:
        submit(people.other, people.charlie, tier)
        settle()
    finally:
        register_admission(before)
    assert state_of(moved) == "running"


@pytest.mark.parametrize("kind", ["notebook", "replica"])
def test_what_people_wait_for_is_refused_with_the_reason(people: Personas, kind: str) -> None:
    make_machine(cpus=1)
    with pytest.raises(InvalidInput) as refused:
        submit(people.vision, people.bob, make_tier(), kind=kind, is_preemptible=True)
    assert refused.value.field == "preemptible"
    assert "people wait for it" in refused.value.message
