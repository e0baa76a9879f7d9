"""Who is placed where: fair share, priority, gangs, quotas, backfill, kinds of node."""

from datetime import timedelta

import pytest

from portal.accounts.models import Membership, Project
from portal.accounts.services.projects import create_project
from portal.accounts.services.teams import create_team
from portal.compute.models import Node
from portal.compute.services.nodes import cordon_node
from portal.compute.services.quotas import set_quota
from portal.core import clock
from portal.workloads.models import Lease, Share, Workload
from portal.workloads.reconciler import charge_running
from portal.workloads.scheduling import BATCH, run_pass, run_passes
from portal.workloads.services.cancellation import stop_workload
from portal.workloads.specs import spec_from
from slipway.schemas.accounts import Role
from tests.personas import Personas
from tests.portal.workloads.machines import (
    after,
    facts,
    finish,
    leases_of,
    make_machine,
    make_tier,
    run,
    states_of,
    submit,
)

pytestmark = pytest.mark.postgres

DOCKER = spec_from(argv=("python", "train.py"), backend="docker")


def test_a_lease_stands_before_anything_starts(people: Personas) -> None:
    machine, tier = make_machine(cpus=4, gib=8), make_tier(cpus=1, gib=2)
    job = submit(people.vision, people.bob, tier)
    assert states_of(job) == ["queued"]
    assert run_pass().placed == 1
    (lease,) = leases_of(job)
    assert (lease.epoch, lease.node_id, lease.state) == (1, machine.node.pk, "granted")
    assert lease.nano_usd_per_hour == tier.nano_usd_per_hour
    node = Node.objects.get()
    assert (node.used_cpu_millis, node.tasks) == (1000, 1)
    assert node.desired_version > machine.node.desired_version


def test_a_node_never_gives_more_than_it_has(people: Personas) -> None:
    make_machine(cpus=4, gib=64)
    tier = make_tier(cpus=1.5, gib=1)
    jobs = [submit(people.vision, people.bob, tier) for _ in range(4)]
    assert run_passes() == 2
    assert states_of(*jobs) == ["placed", "placed", "queued", "queued"]


def test_a_gang_is_placed_whole_or_not_at_all(people: Personas) -> None:
    make_machine("a", cpus=2)
    make_machine("b", cpus=2)
    filler = submit(people.vision, people.bob, make_tier("one", cpus=1))
    run_passes()
    gang = submit(people.vision, people.bob, make_tier("two", cpus=2), nodes=2)
    run_passes()
    assert states_of(filler, gang) == ["placed", "queued"]
    finish(filler)
    run_passes()
    assert states_of(gang) == ["placed"]
    assert {lease.node.name for lease in leases_of(gang)} == {"a", "b"}


def test_tasks_of_a_gang_share_a_node_where_there_are_too_few(people: Personas) -> None:
    make_machine("only", cpus=4)
    gang = submit(people.vision, people.bob, make_tier(cpus=2), nodes=2)
    run_passes()
    assert [lease.node.name for lease in leases_of(gang)] == ["only", "only"]


def test_gpus_are_given_one_by_one_and_never_twice(people: Personas) -> None:
    make_machine("gpu", cpus=16, gib=64, gpus=4)
    tier = make_tier("card", cpus=1, gib=1, gpus=1)
    jobs = [submit(people.vision, people.bob, tier) for _ in range(5)]
    run_passes()
    assert states_of(*jobs) == ["placed"] * 4 + ["queued"]
    given = [index for job in jobs[:4] for index in leases_of(job)[0].gpu_indices]
    assert sorted(given) == [0, 1, 2, 3]


def test_work_without_gpus_leaves_them_alone(people: Personas) -> None:
    make_machine("gpu", cpus=4, gpus=1)
    make_machine("plain", cpus=4)
    job = submit(people.vision, people.bob, make_tier())
    run_passes()
    assert leases_of(job)[0].node.name == "plain"


def test_the_model_of_the_gpu_the_labels_and_the_back_end_decide_who_can(
    people: Personas,
) -> None:
    make_machine("old", cpus=8, gpus=1, gpu_model="T4")
    make_machine("new", cpus=8, gpus=1, gpu_model="H100")
    make_machine("zoned", cpus=8, labels={"zone": "north"}, backends=("process", "docker"))
    expected = {
        "new": submit(people.vision, people.bob, make_tier("h", gpus=1, gpu_model="H100")),
        "old": submit(people.vision, people.bob, make_tier("t", gpus=1, gpu_model="T4")),
        "zoned": submit(people.vision, people.bob, make_tier("n", labels={"zone": "north"})),
    }
    in_docker = submit(people.vision, people.bob, make_tier("d"), spec=DOCKER)
    run_passes()
    assert {name: leases_of(job)[0].node.name for name, job in expected.items()} == {
        name: name for name in expected
    }
    assert leases_of(in_docker)[0].node.name == "zoned"


def test_a_cordoned_or_silent_node_gets_nothing_new(people: Personas) -> None:
    cordoned = make_machine("cordoned")
    cordon_node(node=cordoned.node, reason="new disks")
    silent = make_machine("silent")
    Node.objects.filter(pk=silent.node.pk).update(last_seen_at=after(-26))
    job = submit(people.vision, people.bob, make_tier())
    assert run_passes() == 0
    silent.beat()
    assert run_passes() == 1
    assert leases_of(job)[0].node.name == "silent"


def test_priority_decides_within_a_project_then_age(people: Personas) -> None:
    make_machine(cpus=1)
    tier = make_tier()
    first = submit(people.vision, people.bob, tier)
    second = submit(people.vision, people.bob, tier)
    urgent = submit(people.vision, people.bob, tier, priority=10)
    for expected in (urgent, first, second):
        run_passes()
        assert states_of(expected) == ["placed"]
        finish(expected)


def test_projects_take_turns_however_much_one_submits(people: Personas) -> None:
    make_machine(cpus=4)
    tier = make_tier()
    flood = [submit(people.vision, people.bob, tier) for _ in range(10)]
    few = [submit(people.other, people.charlie, tier) for _ in range(2)]
    run_passes()
    assert states_of(*few) == ["placed", "placed"]
    assert states_of(*flood).count("placed") == 2


def test_who_has_used_less_goes_first(people: Personas) -> None:
    machine, tier = make_machine(cpus=2), make_tier(cpus=2)
    start = clock.now()
    greedy = submit(people.vision, people.bob, tier)
    run_passes()
    with clock.frozen(start + timedelta(hours=1)):
        machine.running = {(lease.task_id, lease.epoch) for lease in leases_of(greedy)}
        machine.beat()
        finish(greedy)
        again = submit(people.vision, people.bob, tier)
        newcomer = submit(people.other, people.charlie, tier)
        run_passes()
    assert states_of(newcomer, again) == ["placed", "queued"]


def test_a_weight_gives_a_larger_share(people: Personas) -> None:
    make_machine(cpus=4)
    tier = make_tier()
    set_quota(group=people.vision, weight=3.0)
    heavy = [submit(people.vision, people.bob, tier) for _ in range(4)]
    light = [submit(people.other, people.charlie, tier) for _ in range(4)]
    run_passes()
    assert states_of(*heavy).count("placed") == 3
    assert states_of(*light).count("placed") == 1


def _team_projects(people: Personas, count: int) -> list[Project]:
    team = create_team(by=people.bob, name="Team")
    return [create_project(by=people.bob, name=f"T{i}", team=team) for i in range(count)]


def test_a_team_counts_as_one_however_many_projects_it_has(people: Personas) -> None:
    make_machine(cpus=4)
    tier = make_tier()
    many = [submit(project, people.bob, tier) for project in _team_projects(people, 4)]
    one = [submit(people.other, people.charlie, tier) for _ in range(4)]
    run_passes()
    assert states_of(*many).count("placed") == 2
    assert states_of(*one).count("placed") == 2


def test_running_work_is_charged_while_it_runs(people: Personas) -> None:
    make_machine()
    job = submit(people.vision, people.bob, make_tier(cpus=2))
    run_passes()
    before = Share.objects.get(project=people.vision).score
    with clock.frozen(after(300)):
        charge_running(clock.now())
        share = Share.objects.get(project=people.vision)
        assert share.score > before
        charge_running(clock.now())
        assert Share.objects.get(project=people.vision).score == share.score
    assert leases_of(job)[0].charged_to_ms > 0


def test_a_quota_holds_at_every_moment(people: Personas) -> None:
    make_machine(cpus=16, gib=64, gpus=2)
    set_quota(group=people.vision, cpu_millis=3000, gpus=1, running=2)
    card = make_tier("card", cpus=1, gpus=1)
    jobs = [submit(people.vision, people.bob, card) for _ in range(2)]
    run_passes()
    assert states_of(*jobs) == ["placed", "queued"]
    plain = make_tier("plain", cpus=1)
    more = [submit(people.vision, people.bob, plain) for _ in range(2)]
    run_passes()
    assert states_of(*more) == ["placed", "queued"]


def test_the_quota_of_a_team_holds_for_all_its_projects(people: Personas) -> None:
    make_machine(cpus=16)
    projects = _team_projects(people, 2)
    assert projects[0].team is not None
    set_quota(group=projects[0].team, cpu_millis=1000)
    jobs = [submit(project, people.bob, make_tier(f"t{i}")) for i, project in enumerate(projects)]
    run_passes()
    assert sorted(states_of(*jobs)) == ["placed", "queued"]


def test_small_work_does_not_overtake_a_large_one_at_a_quota_for_ever(people: Personas) -> None:
    make_machine(cpus=16)
    set_quota(group=people.vision, cpu_millis=4000)
    small, large = make_tier("s", cpus=1), make_tier("l", cpus=4)
    running = submit(people.vision, people.bob, small)
    run_passes()
    first = submit(people.vision, people.bob, large)
    behind = submit(people.vision, people.bob, small)
    run_passes()
    assert states_of(running, first, behind) == ["placed", "queued", "queued"]


def _two_halves(people: Personas) -> tuple[Workload, Workload]:
    """A node of 4 CPUs with half taken by something without a known end, and a head that waits."""
    make_machine("big", cpus=4)
    runs = submit(people.vision, people.bob, make_tier("half", cpus=2))
    run_passes()
    run(runs)
    head = submit(people.vision, people.bob, make_tier("whole", cpus=4))
    return runs, head


def test_a_gap_is_not_filled_by_what_could_delay_the_head(people: Personas) -> None:
    runs, head = _two_halves(people)
    small = submit(people.vision, people.bob, make_tier("small", cpus=1))
    timed = submit(people.vision, people.bob, make_tier("timed", cpus=1), max_lifetime_s=60)
    run_passes()
    # When the node will be free is not known, so not even a short one may go first.
    assert states_of(head, small, timed) == ["queued", "queued", "queued"]
    finish(runs)
    run_passes()
    assert states_of(head) == ["placed"]


def test_a_gap_is_filled_by_what_is_gone_before_the_head_can_start(people: Personas) -> None:
    make_machine("big", cpus=4)
    runs = submit(people.vision, people.bob, make_tier("half", cpus=2), max_lifetime_s=3600)
    run_passes()
    head = submit(people.vision, people.bob, make_tier("whole", cpus=4))
    tier = make_tier("small", cpus=1)
    short = submit(people.vision, people.bob, tier, max_lifetime_s=600)
    long = submit(people.vision, people.bob, tier, max_lifetime_s=7200)
    endless = submit(people.vision, people.bob, tier)
    run_passes()
    assert states_of(runs, head, short) == ["placed", "queued", "placed"]
    assert states_of(long, endless) == ["queued", "queued"]


def test_what_the_head_does_not_lack_may_be_used(people: Personas) -> None:
    make_machine("cards", cpus=32, gib=64, gpus=2)
    card = make_tier("card", cpus=1, gpus=1)
    runs = submit(people.vision, people.bob, card)
    run_passes()
    head = submit(people.vision, people.bob, make_tier("cards", cpus=8, gpus=2))
    plain = submit(people.vision, people.bob, make_tier("plain", cpus=8))
    greedy = submit(people.vision, people.bob, make_tier("wide", cpus=24))
    run_passes()
    assert states_of(runs, head) == ["placed", "queued"]
    assert states_of(plain) == ["placed"]
    # With it the head would lack CPUs when the card comes free.
    assert states_of(greedy) == ["queued"]


def test_a_head_that_no_open_node_could_hold_keeps_nothing_back(people: Personas) -> None:
    big = make_machine("big", cpus=8)
    make_machine("little", cpus=2)
    cordon_node(node=big.node)
    head = submit(people.vision, people.bob, make_tier("huge", cpus=8))
    small = submit(people.vision, people.bob, make_tier("small", cpus=2))
    run_passes()
    assert states_of(head, small) == ["queued", "placed"]


@pytest.mark.thorough
def test_a_pass_is_bounded_and_says_when_there_is_more(people: Personas) -> None:
    for i in range(3):
        make_machine(f"n{i}", cpus=64, gib=64)
    tier = make_tier()
    for _ in range(BATCH + 3):
        submit(people.vision, people.bob, tier)
    first = run_pass()
    assert (first.placed, first.more) == (BATCH, True)
    assert run_passes() == 3
    assert Lease.objects.open().count() == BATCH + 3


def test_a_workload_stopped_while_the_pass_decides_is_left_out(people: Personas) -> None:
    make_machine()
    jobs = [submit(people.vision, people.bob, make_tier(f"t{i}")) for i in range(2)]
    stop_workload(workload=jobs[0], by=people.bob)
    assert run_passes() == 1
    assert states_of(*jobs) == ["stopped", "placed"]


def test_a_node_that_shrinks_keeps_what_runs_and_gets_nothing_new(people: Personas) -> None:
    machine = make_machine(cpus=4)
    tier = make_tier(cpus=2)
    jobs = [submit(people.vision, people.bob, tier) for _ in range(2)]
    run_passes()
    machine.facts = facts(cpus=1)
    machine.beat()
    late = submit(people.vision, people.bob, make_tier("tiny", cpus=0.5))
    run_passes()
    assert states_of(*jobs, late) == ["placed", "placed", "queued"]


def test_members_of_two_projects_compete_as_their_projects_do(people: Personas) -> None:
    Membership.objects.create(user=people.bob, project=people.other, role=Role.CONTRIBUTOR)
    make_machine(cpus=2)
    tier = make_tier()
    jobs = [submit(people.vision, people.bob, tier), submit(people.vision, people.bob, tier)]
    elsewhere = submit(people.other, people.bob, tier)
    run_passes()
    assert states_of(jobs[0], elsewhere) == ["placed", "placed"]


def test_what_could_not_be_started_is_tried_elsewhere_where_there_is_an_elsewhere(
    people: Personas,
) -> None:
    make_machine("broken", cpus=2)
    job = submit(people.vision, people.bob, make_tier())
    run_passes()
    finish(job, "start_failed")
    run_passes()
    assert leases_of(job)[0].node.name == "broken", "there is no other"
    make_machine("sound", cpus=8)
    finish(job, "start_failed")
    run_passes()
    assert leases_of(job)[0].node.name == "sound", "though the other is the tighter fit"
