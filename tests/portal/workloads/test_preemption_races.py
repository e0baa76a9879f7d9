"""Several schedulers at once, beside people who stop what waits: each move is made once."""

import threading
from collections.abc import Callable
from functools import partial

import pytest
from django.db import connection, connections

from portal.workloads.models import Lease, Preemption, Workload
from portal.workloads.services.cancellation import stop_workload
from portal.workloads.tasks import schedule
from tests.personas import Personas
from tests.portal.workloads.machines import finish, make_machine, make_tier, run, states_of, submit

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.django_db(transaction=True, databases=["default", "tracking"]),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite lets one write at a time"),
]


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


def test_schedulers_side_by_side_move_what_is_needed_once(people: Personas) -> None:
    make_machine(cpus=6)
    tier = make_tier()
    jobs = [submit(people.vision, people.bob, tier, is_preemptible=True) for _ in range(6)]
    schedule()
    for job in jobs:
        run(job)
    urgent = [submit(people.other, people.charlie, tier) for _ in range(3)]
    at_once(schedule, schedule, schedule, schedule)
    stopping = list(Workload.objects.filter(state="stopping"))
    assert len(stopping) == Preemption.objects.count() == 3
    at_once(*(partial(finish, job, "preempted") for job in stopping), schedule, schedule)
    schedule()
    assert states_of(*urgent) == ["placed"] * 3
    assert Lease.objects.open().count() == 6


def test_a_beneficiary_that_is_cancelled_meanwhile_leaves_nothing_behind(people: Personas) -> None:
    make_machine(cpus=1)
    tier = make_tier()
    job = submit(people.vision, people.bob, tier, is_preemptible=True)
    schedule()
    run(job)
    for _ in range(5):
        urgent = submit(people.other, people.charlie, tier)
        at_once(schedule, partial(stop_workload, workload=urgent), schedule)
        urgent.refresh_from_db()
        assert (urgent.state, urgent.held_since) == ("stopped", None)
        job.refresh_from_db()
        if job.state == "stopping":
            finish(job, "preempted")
            schedule()
            run(job)
        Workload.objects.filter(pk=job.pk).update(preemptions=0)
        Preemption.objects.all().delete()
        assert Workload.objects.get(pk=job.pk).state == "running"
