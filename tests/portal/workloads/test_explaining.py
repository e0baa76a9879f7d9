"""Each workload explains itself in a sentence, and names nothing its reader may not see."""

from typing import Any

import pytest

from portal.accounts.models import User
from portal.compute.models import Node
from portal.compute.services.nodes import cordon_node, remove_node
from portal.compute.services.quotas import set_quota
from portal.core import clock
from portal.core.errors import InvalidInput
from portal.workloads.explanations import Explainer, position_of
from portal.workloads.models import Lease, Workload
from portal.workloads.ports import (
    AdmissionDeferred,
    AdmissionGranted,
    AdmissionRequest,
    register_admission,
)
from portal.workloads.scheduling import run_passes
from portal.workloads.services.cancellation import stop_workload
from tests.personas import Api, Personas, json_of
from tests.portal.workloads.machines import (
    after,
    finish,
    leases_of,
    make_machine,
    make_tier,
    run,
    send_report,
    submit,
)

pytestmark = pytest.mark.postgres


def explanation_of(workload: Workload, viewer: User) -> str:
    workload.refresh_from_db()
    return Explainer(viewer).explain(workload)


def test_it_says_what_is_missing_where_and_who_has_it(people: Personas) -> None:
    make_machine("gpu-1", cpus=16, gib=64, gpus=2)
    card, cards = make_tier("card", gpus=1), make_tier("cards", gpus=2)
    submit(people.other, people.charlie, card, kind="notebook", name="secret plans")
    run_passes()
    waiting = submit(people.vision, people.bob, cards)
    run_passes()
    assert explanation_of(waiting, people.bob) == (
        "Waiting: needs 2 GPUs; node gpu-1 has 1 free, the rest is held by "
        "another project's notebook."
    )


def test_it_names_what_the_reader_may_see_and_nothing_else(people: Personas) -> None:
    make_machine("gpu-1", cpus=16, gib=64, gpus=2)
    card, cards = make_tier("card", gpus=1), make_tier("cards", gpus=2)
    submit(people.vision, people.bob, card, name="tuning")
    submit(people.other, people.charlie, card, name="secret plans")
    run_passes()
    waiting = submit(people.vision, people.bob, cards)
    sentence = explanation_of(waiting, people.bob)
    assert "vision's job tuning" in sentence
    assert "another project's job" in sentence
    assert "secret" not in sentence
    assert "other's" not in sentence


@pytest.mark.thorough
def test_parts_that_are_not_missing_are_not_mentioned(people: Personas) -> None:
    make_machine("big", cpus=4, gib=64)
    submit(people.vision, people.bob, make_tier("half", cpus=3, gib=1), name="first")
    run_passes()
    waiting = submit(people.vision, people.bob, make_tier("more", cpus=2, gib=1))
    assert explanation_of(waiting, people.bob) == (
        "Waiting: needs 2 CPUs; node big has 1 CPU free, the rest is held by vision's job first."
    )


def test_a_gang_says_how_many_of_its_tasks_fit(people: Personas) -> None:
    make_machine("a", cpus=2)
    make_machine("b", cpus=2)
    two = make_tier("two", cpus=2, gib=1)
    submit(people.vision, people.bob, two)
    run_passes()
    gang = submit(people.vision, people.bob, two, nodes=2)
    assert explanation_of(gang, people.bob) == (
        "Waiting: needs 2 tasks of 2 CPUs and 1 GiB at once; 1 fits now."
    )


def test_closed_nodes_and_places_that_are_not_named_are_counted(people: Personas) -> None:
    machines = [make_machine(f"gpu-{number:02}", gpus=1) for number in range(12)]
    tier = make_tier("card", gpus=1)
    running = submit(people.vision, people.bob, tier, nodes=12)
    run_passes()
    bob = Api.of(people.bob)
    address = f"projects/vision/workloads/{running.pk}"
    assert "gpu-09 and 2 more" in json_of(bob.get(address))["explanation"]
    assert "gpu-09 and 2 more." in json_of(bob.get(f"{address}/events"))["items"][0]["message"]
    run(running)
    finish(running)
    for machine in machines:
        cordon_node(node=machine.node, reason="new driver")
    waiting = submit(people.vision, people.bob, tier)
    run_passes()
    words = json_of(bob.get(f"projects/vision/workloads/{waiting.pk}"))["explanation"]
    assert words.count("is cordoned") == 3
    assert words.endswith("; 9 more nodes are also unavailable.")


def test_a_closed_node_is_named_with_its_reason(people: Personas) -> None:
    machine = make_machine("gpu-1", gpus=1)
    make_machine("plain")
    waiting = submit(people.vision, people.bob, make_tier("card", gpus=1))
    cordon_node(node=machine.node, reason="new driver")
    assert "node gpu-1 is cordoned (new driver)" in explanation_of(waiting, people.bob)
    Node.objects.update(state="ready", last_seen_at=after(-200))
    assert "node gpu-1 sent its last heartbeat 3 minutes ago" in explanation_of(waiting, people.bob)


def test_a_quota_is_told_with_its_numbers(people: Personas) -> None:
    make_machine(cpus=16)
    set_quota(group=people.vision, cpu_millis=3000)
    tier = make_tier("two", cpus=2)
    submit(people.vision, people.bob, tier)
    run_passes()
    waiting = submit(people.vision, people.bob, tier)
    run_passes()
    assert explanation_of(waiting, people.bob) == (
        "Waiting: the project vision may use 3 CPUs at once; 2 CPUs are in use and this needs "
        "2 CPUs."
    )


def test_the_place_in_the_queue_is_told(people: Personas) -> None:
    make_machine("one", cpus=1)
    tier = make_tier()
    jobs = [submit(people.vision, people.bob, tier) for _ in range(4)]
    run_passes()
    assert [position_of(job) for job in jobs[1:]] == [1, 2, 3]
    assert explanation_of(jobs[3], people.bob).endswith(
        "; position 3 in the queue of project vision."
    )


def test_what_would_fit_but_must_wait_for_its_turn_says_so(people: Personas) -> None:
    make_machine(cpus=8)
    tier = make_tier()
    jobs = [submit(people.vision, people.bob, tier) for _ in range(2)]
    assert explanation_of(jobs[0], people.bob) == "Waiting: it fits now and starts within seconds."
    assert explanation_of(jobs[1], people.bob) == (
        "Waiting: 1 workload is ahead of it in the queue of project vision."
    )


def test_running_starting_and_ended_workloads_explain_themselves(people: Personas) -> None:
    make_machine("a", cpus=8)
    job = submit(people.vision, people.bob, make_tier())
    run_passes()
    assert explanation_of(job, people.bob) == "Starting on node a."
    (lease,) = leases_of(job)
    send_report(lease, "starting", message="Building the environment")
    assert explanation_of(job, people.bob) == "Starting on node a: Building the environment."
    run(job)
    send_report(lease, "progress", 3, step=41)
    assert explanation_of(job, people.bob) == "Running on node a, at step 41."
    Node.objects.update(last_seen_at=after(-70))
    assert explanation_of(job, people.bob) == (
        "Running on node a, but node a sent its last heartbeat 1 minute ago."
    )
    stop_workload(workload=job, by=people.bob)
    assert explanation_of(job, people.bob) == "Stopping: Stopped by Bob."
    finish(job, "user")
    assert explanation_of(job, people.bob) == "Stopped by Bob."


def test_memory_that_ran_out_is_told_with_numbers_and_a_next_step(people: Personas) -> None:
    make_machine()
    job = submit(people.vision, people.bob, make_tier())
    run_passes()
    run(job)
    finish(job, "oom", memory_peak_bytes=12_700_000_000, memory_limit_bytes=12 * 1024**3)
    assert explanation_of(job, people.bob) == "Ran out of memory (11.8 GiB of 12 GiB)."
    assert job.next_step == "Choose a tier with more memory, or a smaller batch."


class _HoldEverything:
    def decide(self, request: AdmissionRequest) -> AdmissionGranted | AdmissionDeferred:
        return AdmissionDeferred(f"the budget is used up; {request.tasks} tasks cost more.")


def test_what_the_admission_holds_back_says_why(people: Personas) -> None:
    make_machine()
    register_admission(_HoldEverything())
    try:
        job = submit(people.vision, people.bob, make_tier())
    finally:
        register_admission(_Open())
    assert job.state == "submitted"
    assert explanation_of(job, people.bob) == "Held back: the budget is used up; 1 tasks cost more."


class _Open:
    def decide(self, request: AdmissionRequest) -> AdmissionGranted | AdmissionDeferred:
        return AdmissionGranted()


LARGEST = "it needs 64 CPUs and 1 GiB on one node; the largest, big, has 8 CPUs, 16 GiB and 1 GPU."
LABELS = "it needs a node with the labels zone=x, and none has them."


@pytest.mark.parametrize(
    ("tier", "nodes", "why"),
    [
        ({"cpus": 64}, 1, LARGEST),
        ({"gpus": 2}, 1, "it needs 2 GPUs, but the largest node has 1."),
        ({"gpus": 1, "gpu_model": "A100"}, 1, "it needs 1 A100 GPU, but no node has any."),
        ({"labels": {"zone": "x"}}, 1, LABELS),
        ({"cpus": 4}, 4, "all nodes together can run 3 at once."),
    ],
)
def test_what_can_never_run_is_refused_at_once(
    people: Personas, tier: dict[str, Any], nodes: int, why: str
) -> None:
    make_machine("big", cpus=8, gpus=1)
    make_machine("small", cpus=4)
    made = make_tier("t", **tier)
    with pytest.raises(InvalidInput) as refused:
        submit(people.vision, people.bob, made, nodes=nodes)
    what = "No node can ever fit" if nodes == 1 else f"The nodes can never fit {nodes} tasks of"
    assert refused.value.message == f"{what} tier t: {why}"
    assert refused.value.code == "never_fits"
    assert not Workload.objects.exists()


def test_nothing_can_run_where_no_node_has_joined(people: Personas) -> None:
    with pytest.raises(InvalidInput, match="No node has joined"):
        submit(people.vision, people.bob, make_tier())


def test_more_than_the_quota_ever_allows_is_refused_at_once(people: Personas) -> None:
    make_machine(cpus=8)
    set_quota(group=people.vision, cpu_millis=1000)
    with pytest.raises(InvalidInput, match="may use 1 CPU at once and this needs 2 CPUs"):
        submit(people.vision, people.bob, make_tier(cpus=2))


def test_a_workload_whose_node_was_removed_says_that_nothing_can_hold_it(
    people: Personas,
) -> None:
    machine = make_machine("gpu-1", gpus=1)
    make_machine("plain")
    waiting = submit(people.vision, people.bob, make_tier("card", gpus=1))
    remove_node(node=machine.node)
    assert explanation_of(waiting, people.bob) == (
        "Waiting: no node can fit it anymore: it needs 1 GPU, but no node has any."
    )


def test_between_two_attempts_no_empty_list_of_nodes_is_named(people: Personas) -> None:
    make_machine()
    started = submit(people.vision, people.bob, make_tier())
    run_passes()
    run(started)
    leases = Lease.objects.filter(workload=started)
    assert leases.update(state="ended", ended_at=clock.now())
    assert explanation_of(started, people.bob) == (
        "Running: its node released it; Slipway is deciding whether to restart it."
    )
