"""One leader among many, and periodic tasks that are due once."""

from datetime import timedelta

import pytest
from celery import current_app
from django.db.models.functions import Now

from portal.config.leader_lock import LeaderLock
from portal.config.models import Leadership, Schedule
from portal.config.schedule import claim_due, declared_periods, note_tasks

pytestmark = [pytest.mark.postgres, pytest.mark.django_db]


def _expire() -> None:
    Leadership.objects.update(expires_at=Now() - timedelta(milliseconds=1))


def test_the_first_to_ask_leads_and_keeps_the_office_by_renewing() -> None:
    one, two = LeaderLock("beat", "one"), LeaderLock("beat", "two")
    assert one.acquire_or_renew()
    assert not two.acquire_or_renew()
    assert one.acquire_or_renew()
    assert Leadership.objects.get().epoch == 1


def test_a_leader_that_stops_renewing_is_followed_by_another() -> None:
    one, two = LeaderLock("beat", "one"), LeaderLock("beat", "two")
    one.acquire_or_renew()
    _expire()
    assert two.acquire_or_renew()
    assert not one.acquire_or_renew()
    assert Leadership.objects.get().epoch == 2


def test_a_leader_that_overslept_and_was_not_followed_leads_again() -> None:
    lock = LeaderLock("beat", "one")
    lock.acquire_or_renew()
    _expire()
    assert lock.acquire_or_renew()
    assert Leadership.objects.get().epoch == 2


def test_who_resigns_is_followed_at_once_and_a_stranger_cannot_resign_for_it() -> None:
    one, two = LeaderLock("beat", "one"), LeaderLock("beat", "two")
    one.acquire_or_renew()
    two.resign()
    assert not two.acquire_or_renew()
    one.resign()
    assert two.acquire_or_renew()


def test_the_lease_is_as_long_as_it_says() -> None:
    LeaderLock("beat", "one", lease_s=60).acquire_or_renew()
    row = Leadership.objects.annotate(now=Now()).get()
    assert timedelta(seconds=59) < row.expires_at - row.now <= timedelta(seconds=60)


def test_a_task_is_due_once_a_period() -> None:
    periods = {"room.sweep": timedelta(hours=1)}
    note_tasks(periods)
    assert claim_due(periods) == ["room.sweep"]
    assert claim_due(periods) == []
    Schedule.objects.update(next_at=Now() - timedelta(days=3))
    assert claim_due(periods) == ["room.sweep"]
    assert claim_due(periods) == []


def test_tasks_that_are_no_longer_declared_leave_the_schedule() -> None:
    note_tasks({"room.old": timedelta(hours=1), "room.kept": timedelta(hours=1)})
    claim_due({"room.kept": timedelta(hours=1)})
    note_tasks({"room.kept": timedelta(hours=1), "room.new": timedelta(hours=1)})
    assert claim_due(declared := {"room.kept": timedelta(1), "room.new": timedelta(1)}) == [
        "room.new"
    ]
    assert set(Schedule.objects.values_list("pk", flat=True)) == declared.keys()


def test_every_declared_periodic_task_exists() -> None:
    current_app.loader.import_default_modules()
    periods = declared_periods()
    assert "accounts.deliver_due_mail" in periods
    assert periods.keys() <= current_app.tasks.keys()
    assert all(period >= timedelta(seconds=1) for period in periods.values())
