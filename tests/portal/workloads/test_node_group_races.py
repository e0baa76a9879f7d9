"""Growth, release and placement at the same time: no work on a released node, no machine twice."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, connections

from portal.compute.models import GroupMachine, Node, NodeGroup
from portal.compute.services.group_machines import commit_machines, release_idle_machines
from portal.core import clock
from portal.workloads.growth import plan_growth
from portal.workloads.models import Lease
from portal.workloads.tasks import grow_and_shrink, schedule
from tests.personas import Personas
from tests.portal.workloads.cloud import Cloud, make_group, registered_cloud, step
from tests.portal.workloads.machines import Machine, finish, make_tier, run, states_of, submit

pytestmark = pytest.mark.postgres
only_postgres = pytest.mark.skipif(
    connection.vendor != "postgresql", reason="SQLite lets one write at a time"
)
threaded = pytest.mark.django_db(transaction=True, databases=["default", "tracking"])


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with registered_cloud() as made:
        yield made


def at_once(*actions: Callable[[], object]) -> None:
    """Run actions in threads that begin together. Raises the first error."""
    begin = threading.Barrier(len(actions))
    errors: list[BaseException] = []

    def act(action: Callable[[], object]) -> None:
        try:
            begin.wait(20)
            action()
        except BaseException as error:  # noqa: BLE001  (raised below)
            errors.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=act, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    if errors:
        raise errors[0]


class Died(BaseException):
    """The process was killed, which no handler of errors sees."""


@contextlib.contextmanager
def dying(at: int) -> Iterator[None]:
    """Die after statement number `at`, which may be a commit."""
    left = at

    def execute(
        run: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]
    ) -> Any:
        nonlocal left
        answer = run(sql, params, many, context)
        left -= 1
        if left == -1:
            raise Died
        return answer

    with contextlib.suppress(Died), connection.execute_wrapper(execute):
        yield


def make_idle_node(people: Personas, cloud: Cloud) -> Machine:
    """Return a node of a group that has been idle for longer than the grace."""
    make_group(idle_grace_s=10, max_nodes=3)
    job = submit(people.vision, people.bob, make_tier(cpus=4))
    step()
    (machine,) = cloud.boot_all()
    step()
    run(job)
    finish(job)
    step()
    make_idle()
    return machine


def make_idle() -> None:
    """Let the nodes of all groups have been idle for a minute."""
    since = clock.now() - timedelta(minutes=1)
    GroupMachine.objects.filter(idle_since__isnull=False).update(idle_since=since)


def test_a_placement_after_the_plan_keeps_the_node(people: Personas, cloud: Cloud) -> None:
    machine = make_idle_node(people, cloud)
    groups = list(NodeGroup.objects.all())
    plan = plan_growth(groups)
    job = submit(people.vision, people.bob, make_tier("other", cpus=4))
    schedule()
    assert release_idle_machines(groups[0], needed=plan.needed_nodes) == 0
    assert states_of(job) == ["placed"]
    assert Node.objects.get(pk=machine.node.pk).state == "ready"


def test_a_release_before_the_placement_makes_the_work_wait(people: Personas, cloud: Cloud) -> None:
    make_idle_node(people, cloud)
    (group,) = NodeGroup.objects.all()
    assert release_idle_machines(group, needed=()) == 1
    job = submit(people.vision, people.bob, make_tier("other", cpus=4))
    step()
    assert states_of(job) == ["queued"]
    assert list(GroupMachine.objects.order_by("pk").values_list("state", flat=True)) == [
        "draining",
        "starting",
    ]


def test_a_plan_that_is_out_of_date_requests_nothing(people: Personas, cloud: Cloud) -> None:
    group = make_group()
    submit(people.vision, people.bob, make_tier(cpus=4))
    plan = plan_growth([group])
    assert plan.count_for(group) == 1
    assert len(commit_machines(group, 1, known=plan.known[group.pk])) == 1
    assert commit_machines(group, 1, known=plan.known[group.pk]) == []


def test_a_machine_that_was_committed_and_not_requested_is_requested_later(
    people: Personas, cloud: Cloud
) -> None:
    group = make_group()
    job = submit(people.vision, people.bob, make_tier(cpus=4))
    (row,) = commit_machines(group, 1, known=())
    step()
    assert list(cloud.orders) == [row.name]
    cloud.boot_all()
    step()
    assert states_of(job) == ["placed"]


@pytest.mark.thorough
def test_a_death_at_any_statement_neither_loses_nor_doubles_a_machine(
    people: Personas, cloud: Cloud
) -> None:
    make_group(idle_grace_s=10, max_nodes=3)
    tier = make_tier(cpus=4)
    for at in range(45):
        job = submit(people.vision, people.bob, tier)
        with dying(at):
            grow_and_shrink()
        step()
        step()
        assert len(cloud.alive()) == GroupMachine.objects.counted().count() == 1, at
        cloud.boot_all()
        step()
        assert states_of(job) == ["placed"], at
        run(job)
        finish(job)
        step()
        make_idle()
        with dying(at):
            grow_and_shrink()
        for _ in range(3):
            make_idle()
            step()
        assert cloud.alive() == [], at
        assert not GroupMachine.objects.open().exists(), at
    assert not GroupMachine.objects.exclude(failure="").exists()


@only_postgres
@threaded
@pytest.mark.thorough
def test_release_and_placement_at_once_never_meet(people: Personas, cloud: Cloud) -> None:
    make_idle_node(people, cloud)
    tier = make_tier("other", cpus=4)
    for _ in range(5):
        job = submit(people.vision, people.bob, tier)
        make_idle()
        at_once(schedule, grow_and_shrink, schedule, grow_and_shrink)
        held = Lease.objects.open().values_list("node__state", flat=True)
        assert "removed" not in held
        cloud.boot_all()
        step()
        step()
        assert states_of(job) == ["placed"]
        run(job)
        finish(job)
        step()


@only_postgres
@threaded
def test_control_workers_side_by_side_make_each_machine_once(
    people: Personas, cloud: Cloud
) -> None:
    make_group(max_nodes=10, max_starting=10)
    tier = make_tier(cpus=4)
    for _ in range(4):
        submit(people.vision, people.bob, tier)
    at_once(*[grow_and_shrink] * 4)
    grow_and_shrink()
    assert GroupMachine.objects.count() == len(cloud.orders) == 4
