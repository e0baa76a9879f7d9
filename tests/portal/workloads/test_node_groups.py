"""Node groups: nodes for what waits, and none for what may not start; idle nodes leave."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from portal.accounts.models import AuditEvent
from portal.compute.lifecycle import MachineState
from portal.compute.models import GroupMachine, JoinToken, MachineDay, Node, NodeGroup
from portal.compute.provisioners import MachinePhase
from portal.compute.services.group_machines import drain_machine
from portal.compute.services.node_groups import change_node_group, remove_node_group
from portal.compute.services.nodes import cordon_node, drain_node, remove_node
from portal.compute.services.quotas import set_quota
from portal.compute.tasks import delete_machines
from portal.core import clock
from portal.core.clock import frozen
from portal.core.errors import Conflict, InvalidInput
from portal.core.text import span_text
from portal.workloads.explanations import Explainer
from portal.workloads.feasibility import refuse_impossible
from portal.workloads.growth_reasons import growth_estimate
from portal.workloads.models import Workload
from tests.personas import Personas
from tests.portal.workloads.cloud import Cloud, make_group, registered_cloud, step
from tests.portal.workloads.machines import (
    finish,
    make_machine,
    make_tier,
    run,
    states_of,
    submit,
)

pytestmark = pytest.mark.postgres


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with registered_cloud() as made:
        yield made


def states() -> list[str]:
    """Return the states of all machines, oldest first."""
    return list(GroupMachine.objects.order_by("pk").values_list("state", flat=True))


def steps(count: int) -> None:
    """Run the control worker's tasks several times."""
    for _ in range(count):
        step()


def reason(workload: Workload, people: Personas) -> str:
    """Return why a workload waits."""
    workload.refresh_from_db()
    return Explainer(people.bob).explain(workload)


def test_a_job_that_fits_nowhere_gets_a_node(people: Personas, cloud: Cloud) -> None:
    make_group()
    tier = make_tier(cpus=4)
    job = submit(people.vision, people.bob, tier)
    step()
    assert states() == ["starting"]
    assert reason(job, people).startswith("Waiting: a node of group gpu is starting (")
    step()
    assert len(cloud.orders) == 1
    (machine,) = cloud.boot_all()
    step()
    assert states_of(job) == ["placed"]
    assert states() == ["joined"]
    assert machine.node.group is not None
    assert machine.node.labels["node-group"] == "gpu"


def test_work_that_fits_on_existing_nodes_gets_no_node(people: Personas, cloud: Cloud) -> None:
    make_group()
    make_machine(cpus=4)
    tier = make_tier(cpus=2)
    submit(people.vision, people.bob, tier)
    submit(people.vision, people.bob, tier)
    step()
    assert states() == []
    submit(people.vision, people.bob, tier)
    submit(people.vision, people.bob, tier)
    step()
    assert states() == ["starting"]  # both fit on one node
    submit(people.vision, people.bob, tier)
    step()
    assert states() == ["starting", "starting"]


def test_a_gang_gets_all_its_nodes_or_none(people: Personas, cloud: Cloud) -> None:
    make_group(max_nodes=3)
    tier = make_tier(cpus=4)
    job = submit(people.vision, people.bob, tier, nodes=3)
    step()
    assert states() == ["starting"] * 3
    assert "3 nodes of group gpu are starting" in reason(job, people)
    first = next(iter(cloud.orders))
    cloud.boot(first)
    later = clock.now() + timedelta(minutes=9)
    with frozen(later):
        step()
        # The node of the gang is idle for longer than the grace, and is needed.
        assert states() == ["joined", "starting", "starting"]
    cloud.boot_all()
    step()
    assert states_of(job) == ["placed"]
    with pytest.raises(InvalidInput, match="never fit 4 tasks"):
        refuse_impossible(project=people.vision, tier=tier, tasks=4)


def test_limits_of_a_group_hold_and_are_the_reason(people: Personas, cloud: Cloud) -> None:
    make_group(max_nodes=2, max_starting=1)
    tier = make_tier(cpus=4)
    jobs = [submit(people.vision, people.bob, tier) for _ in range(4)]
    step()
    step()
    assert states() == ["starting"]
    cloud.boot_all()
    step()
    assert states() == ["joined", "starting"]
    cloud.boot_all()
    step()
    step()
    assert states() == ["joined", "joined"]
    assert states_of(*jobs) == ["placed", "placed", "queued", "queued"]
    assert "has its most nodes (2), and they are in use" in reason(jobs[2], people)


def test_work_over_its_quota_gets_no_node(people: Personas, cloud: Cloud) -> None:
    make_group()
    tier = make_tier(cpus=4)
    set_quota(group=people.vision, cpu_millis=4000)
    jobs = [submit(people.vision, people.bob, tier) for _ in range(2)]
    step()
    assert states() == ["starting"]
    cloud.boot_all()
    step()
    step()
    assert states() == ["joined"]
    assert "at once" in reason(jobs[1], people)


def test_only_projects_of_a_group_get_its_nodes(people: Personas, cloud: Cloud) -> None:
    make_group(projects=[people.other])
    tier = make_tier(cpus=4)
    with pytest.raises(InvalidInput, match="No node has joined"):
        refuse_impossible(project=people.vision, tier=tier, tasks=1)
    stranger = submit(people.other, people.charlie, tier)
    step()
    cloud.boot_all()
    step()
    assert states_of(stranger) == ["placed"]
    run(stranger)
    finish(stranger)
    make_machine(cpus=1)
    with pytest.raises(InvalidInput, match="No node can ever fit"):
        refuse_impossible(project=people.vision, tier=tier, tasks=1)
    small = make_tier("tiny", cpus=1)
    jobs = [submit(people.vision, people.bob, small) for _ in range(2)]
    step()
    # One runs on the node for all. The node of the group is free and not for this project.
    assert states_of(*jobs) == ["placed", "queued"]
    assert "gpu" not in reason(jobs[1], people)


def test_an_idle_node_leaves_after_the_grace_and_never_below_the_least(
    people: Personas, cloud: Cloud
) -> None:
    group = make_group(min_nodes=1, idle_grace_s=300)
    step()
    assert states() == ["starting"]  # the least, without any work
    tier = make_tier(cpus=4)
    jobs = [submit(people.vision, people.bob, tier) for _ in range(2)]
    step()
    machines = cloud.boot_all()
    step()
    for job in jobs:
        run(job)
        finish(job)
    step()
    start = clock.now()
    with frozen(start + timedelta(seconds=290)):
        for machine in machines:
            machine.beat()
        step()
        assert states() == ["joined", "joined"]
    with frozen(start + timedelta(seconds=310)):
        for machine in machines:
            machine.beat()
        steps(3)
        assert sorted(states()) == ["joined", "released"]
        (left,) = GroupMachine.objects.filter(state="released")
        assert left.reason == "It had no work for 5 min."
        assert left.idle_ms == pytest.approx(310_000, abs=5000)
        assert left.node is not None
        assert left.node.state == "removed"
        assert len(cloud.alive()) == 1
    change_node_group(group=group, is_open=False)
    with frozen(start + timedelta(seconds=620)):
        steps(3)
        assert states() == ["released", "released"]
    remove_node_group(group=group)


def test_a_node_with_work_stays(people: Personas, cloud: Cloud) -> None:
    group = make_group()
    job = submit(people.vision, people.bob, make_tier(cpus=4))
    step()
    (machine,) = cloud.boot_all()
    step()
    run(job)
    with frozen(clock.now() + timedelta(seconds=20)):
        machine.beat()
        step()
    row = GroupMachine.objects.get()
    assert row.idle_since is None
    assert not drain_machine(row, "It had no work.")
    assert states() == ["joined"]
    with pytest.raises(Conflict, match="still has 1 machine"):
        remove_node_group(group=group)


def test_a_machine_that_never_joins_is_released_and_says_why(
    people: Personas, cloud: Cloud
) -> None:
    group = make_group(join_within_s=120)
    job = submit(people.vision, people.bob, make_tier(cpus=4))
    step()
    cloud.console = "cloud-init: started\npip: no route to host\n"
    start = clock.now()
    with frozen(start + timedelta(seconds=130)):
        step()
        assert states() == ["draining"]
        row = GroupMachine.objects.get()
        assert row.failure == (
            "It did not join within 2 min. The end of its console: pip: no route to host"
        )
        assert "no route to host. Slipway tries again in 30 s" in reason(job, people)
        steps(2)
        assert states() == ["failed"]
        assert cloud.alive() == []
    with pytest.raises(Exception, match="join token"):
        cloud.boot(row.name)  # too late
    with frozen(start + timedelta(seconds=170)):
        step()
        assert states() == ["failed", "starting"]
    group.refresh_from_db()
    assert group.failures == 1
    cloud.boot_all()
    with frozen(start + timedelta(seconds=180)):
        step()
    group.refresh_from_db()
    assert (group.failures, group.problem, group.retry_at) == (0, "", None)


def test_a_refusal_is_the_reason_and_is_not_repeated_at_once(
    people: Personas, cloud: Cloud
) -> None:
    make_group()
    job = submit(people.vision, people.bob, make_tier(cpus=4))
    cloud.refusal = "You have requested more vCPU capacity than your limit of 8"
    step()
    step()
    assert states() == ["failed"]
    assert "Test cloud refused it: You have requested more vCPU" in reason(job, people)
    start = clock.now()
    with frozen(start + timedelta(seconds=40)):
        step()
        assert len(states()) == 2
    with frozen(start + timedelta(seconds=80)):
        step()
        assert len(states()) == 2  # the second pause is longer
        assert "Slipway tries again in" in reason(job, people)


def test_a_lost_answer_makes_no_second_machine(people: Personas, cloud: Cloud) -> None:
    make_group()
    job = submit(people.vision, people.bob, make_tier(cpus=4))
    cloud.loses_answers = True
    step()
    assert states() == ["requested"]
    assert "does not answer: the connection was reset" in (NodeGroup.objects.get().problem)
    step()
    cloud.loses_answers = False
    step()
    assert states() == ["starting"]
    assert len(cloud.orders) == 1
    cloud.boot_all()
    step()
    assert states_of(job) == ["placed"]


def test_a_provider_that_is_away_costs_nothing_but_time(people: Personas, cloud: Cloud) -> None:
    make_group()
    first = submit(people.vision, people.bob, make_tier(cpus=4))
    step()
    (machine,) = cloud.boot_all()
    step()
    run(first)
    second = submit(people.vision, people.bob, make_tier("other", cpus=4))
    cloud.away = "timed out"
    step()
    assert states() == ["joined"]
    assert states_of(first) == ["running"]
    assert "Test cloud does not answer: timed out" in reason(second, people)
    cloud.away = ""
    with frozen(clock.now() + timedelta(seconds=15)):
        machine.beat()
        step()
    assert states() == ["joined", "starting"]


def test_a_machine_that_nobody_knows_is_released_with_a_line_in_the_audit_log(
    people: Personas, cloud: Cloud
) -> None:
    make_group()
    cloud.phases["gpu-lost"] = MachinePhase.RUNNING
    step()
    assert states() == ["draining"]
    event = AuditEvent.objects.get(verb="node_group.unknown_machine")
    assert event.actor == "Node groups"
    assert event.after is not None
    assert event.after["machine"] == "gpu-lost"
    step()
    assert cloud.alive() == ["gpu-lost"]
    with frozen(clock.now() + timedelta(minutes=11)):
        step()
        step()
    assert cloud.alive() == []
    assert states() == ["released"]


def test_a_machine_that_appears_after_it_was_given_up_is_released(
    people: Personas, cloud: Cloud
) -> None:
    make_group()
    submit(people.vision, people.bob, make_tier(cpus=4))
    cloud.refusal = "no"
    step()
    row = GroupMachine.objects.get()
    cloud.phases[row.name] = MachinePhase.STARTING
    with frozen(clock.now() + timedelta(minutes=2)):
        cloud.refusal = ""
        step()
    assert cloud.phases[row.name] is MachinePhase.GONE


def test_administrators_drain_cordon_and_remove_nodes_of_groups(
    people: Personas, cloud: Cloud
) -> None:
    make_group(idle_grace_s=60)
    tier = make_tier(cpus=4)
    jobs = [submit(people.vision, people.bob, tier) for _ in range(3)]
    step()
    machines = cloud.boot_all()
    step()
    for job in jobs:
        run(job)
        finish(job)
    drain_node(node=machines[0].node)
    cordon_node(node=machines[1].node)
    remove_node(node=machines[2].node)
    steps(3)
    assert states() == ["released", "joined", "released"]
    with frozen(clock.now() + timedelta(minutes=2)):
        machines[1].beat()
        step()
        assert states() == ["released", "joined", "released"]  # until it is uncordoned


def test_a_machine_that_ends_by_itself_is_noted_and_its_node_removed(
    people: Personas, cloud: Cloud
) -> None:
    make_group()
    job = submit(people.vision, people.bob, make_tier(cpus=4))
    step()
    (machine,) = cloud.boot_all()
    step()
    run(job)
    cloud.phases[machine.node.name] = MachinePhase.GONE
    step()
    assert states() == ["joined"]  # as long as its lease is open
    finish(job, "node_lost")
    steps(2)
    assert states_of(job) == ["queued"]  # not placed on the dead node, for which another starts
    rows = GroupMachine.objects.order_by("pk")
    assert rows[0].state == MachineState.RELEASED
    assert rows[0].reason == "Test cloud ended it."
    assert Node.objects.get(pk=machine.node.pk).state == "removed"


def test_a_node_that_turns_out_smaller_makes_no_second_one(people: Personas, cloud: Cloud) -> None:
    make_group(idle_grace_s=10)
    job = submit(people.vision, people.bob, make_tier(cpus=4))
    step()
    cloud.boot(next(iter(cloud.orders)), cpus=3.5)
    step()
    step()
    assert states() == ["joined"]
    assert "no node can fit it anymore" in reason(job, people)


def test_new_work_is_told_of_the_node_that_would_be_made(people: Personas, cloud: Cloud) -> None:
    make_group(max_nodes=2)
    need = make_tier(cpus=4).need
    assert growth_estimate(people.vision, need, 1) == "A node of group gpu is made for it."
    assert growth_estimate(people.vision, need, 2) == "2 nodes of group gpu are made for it."
    assert growth_estimate(people.vision, need, 3) == ""
    submit(people.vision, people.bob, make_tier("other", cpus=4))
    step()
    with frozen(clock.now() + timedelta(seconds=80)):
        cloud.boot_all()
        step()
        text = growth_estimate(people.vision, need, 1)
    assert text == "A node of group gpu is made for it; that usually takes 1 min 20 s."


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (45.4, "45 s"), (60, "1 min"), (80, "1 min 20 s"), (3900, "1 h 5 min")],
)
def test_times_are_written_for_a_sentence(seconds: float, text: str) -> None:
    assert span_text(timedelta(seconds=seconds)) == text


def test_machines_are_forgotten_ninety_days_after_their_release_and_their_cost_is_not(
    people: Personas, cloud: Cloud
) -> None:
    start = clock.now()
    group = make_group(min_nodes=1)
    step()
    cloud.boot_all()
    step()
    change_node_group(group=group, is_open=False)
    with frozen(start + timedelta(minutes=10)):
        steps(3)
        assert states() == ["released"]
        change_node_group(group=group, is_open=True)
        step()  # a second one, which exists
    cost = list(MachineDay.objects.order_by("pk").values_list("use", "nano_usd"))
    with frozen(start + timedelta(days=90)):
        delete_machines()
        assert states() == ["released", "starting"]
    with frozen(start + timedelta(days=90, minutes=11)):
        delete_machines()
        delete_machines()
        assert states() == ["starting"]
        assert JoinToken.objects.count() == 1
    assert list(MachineDay.objects.order_by("pk").values_list("use", "nano_usd")) == cost
