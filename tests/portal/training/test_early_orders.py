"""Work in a pool is ordered when it arrives, and not when the period of the orders is over."""

from collections.abc import Iterator
from datetime import timedelta
from functools import partial

import pytest
from django.db import connection, connections
from django.db.models import QuerySet

from portal.config.leader_lock import LeaderLock
from portal.config.models import Schedule
from portal.core import clock
from portal.workloads.models import Allocation
from portal.workloads.tasks import schedule, tend
from tests.personas import Api, Personas
from tests.portal.training.jobs import made_job
from tests.portal.training.test_pools import Accountant, accountant, make_pool
from tests.portal.workloads.machines import Machine
from tests.processes import wait_for
from workers.control.beat import Beat

__all__ = ["accountant"]
pytestmark = [
    pytest.mark.postgres,
    pytest.mark.thorough,
    pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite lets one write at a time"),
    pytest.mark.django_db(transaction=True, databases=["default", "tracking"]),
]


@pytest.fixture
def beat() -> Iterator[Beat]:
    """The periodic tasks of a control worker, where orders have a period of an hour."""
    made = Beat(LeaderLock("beat", "test"), {tend.name: timedelta(hours=1)})
    made.start()
    in_an_hour = Schedule.objects.filter(next_at__gt=clock.now() + timedelta(minutes=30))
    wait_for(in_an_hour.exists, "first run", within_s=30)
    yield made
    made.stop()
    connections.close_all()


def test_the_machines_of_a_new_job_are_ordered_at_once(
    people: Personas, bob: Api, machine: Machine, accountant: Accountant, beat: Beat
) -> None:
    make_pool(Api.of(people.root))
    orders = Allocation.objects.exclude(handle="")
    for count in (1, 2):
        made_job(bob, pool="twin")
        schedule()
        wait_for(partial(_are_at_least, orders, count), "order", within_s=30)


def _are_at_least(orders: QuerySet[Allocation], count: int) -> bool:
    return orders.all().count() >= count
