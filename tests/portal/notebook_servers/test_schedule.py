"""Servers that start and stop at a time of day."""

from datetime import UTC, datetime, timedelta

import pytest
from pytest_django import DjangoCaptureOnCommitCallbacks

from portal.accounts.models import AuditEvent, Membership
from portal.core import clock
from portal.notebooks.models import Server
from portal.notebooks.server_schedule import apply_schedules, last_occurrence, next_occurrence
from portal.notebooks.workload_sync import sync_all
from portal.workloads.models import Workload
from tests.personas import Api, Personas, json_of
from tests.portal.notebook_servers.servers import SERVERS, Desk

EVERY_DAY = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]


@pytest.fixture(autouse=True)
def _news(django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks) -> object:
    """News of workloads are sent on commit, which a test never does."""
    with django_capture_on_commit_callbacks(execute=True):
        yield


def minutes_from_now(minutes: int) -> str:
    """Answer a time of day."""
    return (clock.now() + timedelta(minutes=minutes)).astimezone(UTC).strftime("%H:%M")


def age(server: str, **span: float) -> None:
    """Let a server, and its present start, be older."""
    past = clock.now() - timedelta(**span)
    Server.objects.filter(pk=server).update(schedule_seen_at=past)
    workload = Server.objects.get(pk=server).workload_id
    Workload.objects.filter(pk=workload).update(created_at=past)


def test_moments_are_found_on_the_chosen_days_alone() -> None:
    thursday = datetime(2026, 11, 19, 12, 0, tzinfo=UTC)
    assert last_occurrence("08:00", EVERY_DAY, thursday) == thursday.replace(hour=8)
    assert last_occurrence("13:00", ["mon"], thursday) == datetime(2026, 11, 16, 13, 0, tzinfo=UTC)
    assert last_occurrence("13:00", ["thu"], thursday) == datetime(2026, 11, 12, 13, 0, tzinfo=UTC)
    assert next_occurrence("08:00", ["thu"], thursday) == datetime(2026, 11, 26, 8, 0, tzinfo=UTC)
    assert next_occurrence("12:01", EVERY_DAY, thursday) == thursday.replace(minute=1)
    assert last_occurrence("", EVERY_DAY, thursday) is None


@pytest.mark.postgres
def test_a_server_is_warned_and_stopped_at_its_time(desk: Desk) -> None:
    server = desk.ready(daily_stop=minutes_from_now(3), days=EVERY_DAY)
    apply_schedules()
    warned = json_of(desk.report(server, moved=True))
    assert warned["stops_at"] is not None
    assert warned["why"].endswith("UTC, as scheduled.")
    assert desk.look(server)["state"] == "ready"
    Server.objects.filter(pk=server).update(daily_stop=minutes_from_now(-2))
    apply_schedules()
    assert desk.look(server)["state"] == "ready", "it was started after that"
    age(server, minutes=30)
    apply_schedules()
    assert desk.look(server)["state"] == "stopping"
    desk.end(server, "user")
    sync_all()
    assert "as scheduled" in desk.look(server)["explanation"]


@pytest.mark.postgres
def test_a_server_starts_at_its_time_once(desk: Desk) -> None:
    server = desk.ready(daily_start=minutes_from_now(-10), days=EVERY_DAY)
    desk.api.post(f"{SERVERS}/{server}/stop")
    desk.end(server, "user")
    sync_all()
    apply_schedules()
    assert desk.look(server)["state"] == "stopped", "its time was before it was launched"
    age(server, minutes=30)
    apply_schedules()
    assert desk.look(server)["state"] == "starting"
    desk.api.post(f"{SERVERS}/{server}/stop")
    sync_all()
    apply_schedules()
    assert desk.look(server)["state"] == "stopped", "whoever stops it then keeps it stopped"


def test_a_start_that_was_missed_by_hours_is_let_go(desk: Desk) -> None:
    server = desk.ready(daily_start=minutes_from_now(-120), days=EVERY_DAY)
    desk.api.post(f"{SERVERS}/{server}/stop")
    desk.end(server, "user")
    sync_all()
    age(server, hours=3)
    apply_schedules()
    assert desk.look(server)["state"] == "stopped"


def test_who_left_the_project_has_nothing_started(desk: Desk, people: Personas) -> None:
    server = desk.ready(daily_start=minutes_from_now(-10), days=EVERY_DAY)
    desk.api.post(f"{SERVERS}/{server}/stop")
    desk.end(server, "user")
    sync_all()
    age(server, minutes=30)
    Membership.objects.filter(user=people.bob, project=people.vision).delete()
    apply_schedules()
    assert Server.objects.get(pk=server).state == "stopped"


def test_a_schedule_is_told_and_judged(desk: Desk) -> None:
    made = desk.launch(daily_start="08:00", daily_stop="18:30", days=["fri", "mon", "mon"])
    details = desk.look(made["id"])
    assert (details["daily_start"], details["daily_stop"]) == ("08:00", "18:30")
    assert details["days"] == ["mon", "fri"]
    for body, field in (
        ({"daily_start": "8:00"}, "daily_start"),
        ({"daily_stop": "24:00"}, "daily_stop"),
        ({"days": []}, "days"),
        ({"days": ["someday"]}, "days"),
    ):
        refused = desk.api.post(SERVERS, {"name": "other"} | body)
        assert refused.status_code in (400, 422), refused.content
        assert field in str(json_of(refused))


def test_a_schedule_is_changed_while_the_server_runs(desk: Desk, people: Personas) -> None:
    server = desk.ready(daily_stop=minutes_from_now(3), days=EVERY_DAY)
    apply_schedules()
    assert desk.look(server)["stops_at"] is not None
    Workload.objects.update(created_at=clock.now() - timedelta(hours=1))
    passed = minutes_from_now(-2)
    edit = f"{SERVERS}/{server}"
    changed = json_of(desk.api.patch(edit, {"daily_stop": passed, "idle_minutes": 90}))
    assert (changed["daily_stop"], changed["idle_minutes"]) == (passed, 90)
    assert (changed["daily_start"], changed["days"]) == (None, EVERY_DAY)
    assert changed["stops_at"] is None, "what was warned of is not to come"
    apply_schedules()
    assert desk.look(server)["state"] == "ready", "a time that has passed counts tomorrow"
    cleared = json_of(desk.api.patch(edit, {"daily_stop": ""}))
    assert (cleared["daily_stop"], cleared["days"]) == (None, [])
    desk.api.patch(edit, {})
    kept = AuditEvent.objects.filter(verb="notebook.edit", target_id=server).order_by("id")
    assert [event.after for event in kept] == [
        {"daily_stop": passed, "idle_after_s": 5400},
        {"daily_stop": ""},
    ]
    for body, field in (({"daily_stop": "8:00"}, "daily_stop"), ({"idle_minutes": 1}, "idle")):
        refused = desk.api.patch(edit, body)
        assert refused.status_code == 422, refused.content
        assert field in str(json_of(refused))
    for other, status in ((people.mia, 403), (people.vera, 403), (people.charlie, 404)):
        assert Api.of(other).patch(edit, {"idle_minutes": 60}).status_code == status


def test_a_changed_stop_comes_at_its_next_time(desk: Desk) -> None:
    server = desk.ready()
    stop = minutes_from_now(-2)
    desk.api.patch(f"{SERVERS}/{server}", {"daily_stop": stop, "days": EVERY_DAY})
    age(server, minutes=30)
    apply_schedules()
    assert desk.look(server)["state"] == "stopping"
