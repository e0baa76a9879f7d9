"""Live events: who may listen on, how numbers settle, how rows go away."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from allauth.usersessions.models import UserSession
from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore
from django.http import HttpRequest

from portal.accounts.gates import ProjectRole
from portal.accounts.models import Membership, Project, User
from portal.accounts.services.people import sign_out_everywhere
from portal.accounts.services.projects import archive_project, change_project
from portal.accounts.services.teams import create_team
from portal.core import clock
from portal.core.errors import SlipwayError
from portal.web import wiring
from portal.web.models import KEPT, LiveEvent
from portal.web.streams import sse
from portal.web.streams.auth import PageListener, authorized_listeners, listener_of
from slipway.schemas.accounts import Role, Scope
from tests.personas import Personas

GATE = ProjectRole(Role.VIEWER, Scope.PROJECTS_READ, archived=True)


def _session(user: User) -> str:
    store = SessionStore()
    store[SESSION_KEY] = user.pk
    store.create()
    key = str(store.session_key)
    UserSession.objects.create(user=user, session_key=key, ip="127.0.0.1", user_agent="x")
    return key


def _listener(user: User, project: Project) -> PageListener:
    return listener_of(user, _session(user), project)


def _gate_opens(user: User, project: Project) -> bool:
    request = HttpRequest()
    request.user = User.objects.get(pk=user.pk)
    request.path = f"/p/{project.slug}"
    try:
        GATE.check(request, {"project": project.slug})
    except SlipwayError:
        return False
    return True


def _demote_to_team(people: Personas) -> None:
    crew = create_team(by=people.alice, name="Crew")
    Membership.objects.create(user=people.bob, team=crew, role=Role.VIEWER)
    Project.objects.filter(pk=people.vision.pk).update(team=crew)
    Membership.objects.filter(user=people.bob, project=people.vision).delete()


def _out_of_everything(people: Personas) -> None:
    Membership.objects.filter(user=people.bob).delete()


def _team_leaves(people: Personas) -> None:
    _demote_to_team(people)
    Membership.objects.filter(user=people.bob, team__isnull=False).delete()


def _archived_for_owner(people: Personas) -> None:
    Membership.objects.filter(user=people.bob).update(role=Role.OWNER)
    archive_project(project=people.vision)


def _nothing(people: Personas) -> None:
    change_project(project=people.vision, name="Other name")


def _suspended(people: Personas) -> None:
    User.objects.filter(pk=people.bob.pk).update(is_active=False)


@pytest.mark.parametrize(
    "happens",
    [
        _nothing,
        _demote_to_team,
        _out_of_everything,
        _team_leaves,
        lambda people: archive_project(project=people.vision),
        _archived_for_owner,
        _suspended,
        lambda people: people.vision.delete(),
    ],
)
def test_a_stream_lasts_as_long_as_its_gate_would_open(
    people: Personas, happens: Callable[[Personas], Any]
) -> None:
    listener = _listener(people.bob, people.vision)
    assert authorized_listeners([listener]) == {listener}
    slug = Project(slug=people.vision.slug)
    happens(people)
    assert (listener in authorized_listeners([listener])) is _gate_opens(people.bob, slug)


def test_a_stream_ends_with_its_session_and_no_other(people: Personas) -> None:
    own, other = (_listener(people.bob, people.vision) for _ in range(2))
    sign_out_everywhere(user=people.bob, keep_session=other.session_key)
    assert authorized_listeners([own, other]) == {other}


def test_a_stream_ends_with_the_password_it_was_opened_under(people: Personas) -> None:
    listener = _listener(people.bob, people.vision)
    people.bob.set_password("another-long-phrase")
    people.bob.save()
    assert authorized_listeners([listener]) == set()


def test_asking_for_many_listeners_costs_as_much_as_for_one(
    people: Personas, django_assert_num_queries: Any
) -> None:
    everybody = [people.alice, people.mia, people.bob, people.vera]
    listeners = [_listener(user, people.vision) for user in everybody]
    with django_assert_num_queries(4):
        assert authorized_listeners(listeners) == set(listeners)


def _hub(*topics: str) -> tuple[sse.PageHub, sse.PageStream]:
    hub = sse.PageHub()
    stream = sse.PageStream.of(PageListener("usr_1", "key", "proof", topics=frozenset(topics)))
    hub.streams.add(stream)
    return hub, stream


def test_a_row_that_commits_late_with_a_lower_number_is_delivered() -> None:
    hub, stream = _hub("prj_1")
    hub._deliver([(5, "prj_1", "members")])
    assert list(stream.waiting) == ["live:members"]
    stream.waiting.clear()
    hub._deliver([(4, "prj_1", "secrets"), (5, "prj_1", "members")])
    assert list(stream.waiting) == ["live:secrets"], "and nothing is delivered twice"
    assert hub.settled == 0, "a page that comes back asks from before both"


def test_numbers_settle_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    hub, _ = _hub("prj_1")
    hub._deliver([(4, "prj_1", "a"), (5, "prj_1", "b")])
    monkeypatch.setattr(sse, "SETTLE_S", -1.0)
    hub._deliver([])
    assert hub.settled == 5
    assert hub._seen == {}


def test_a_flood_of_rows_is_read_to_its_end() -> None:
    hub, stream = _hub("prj_1")
    rows = [(number, "prj_1", "members") for number in range(1, sse.MOST_ROWS + 1)]
    hub._deliver(rows)
    assert hub.settled == sse.MOST_ROWS // 2
    assert list(stream.waiting) == ["live:members"], "rings that wait together are one"


def test_a_quiet_stream_says_that_it_is_still_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "HEARTBEAT_S", 0.01)

    async def quiet() -> bytes:
        hub, stream = _hub()
        return await sse._next(stream, hub)

    assert asyncio.run(quiet()) == b": still here\n\n"


def test_a_stream_that_cannot_keep_up_is_told_to_ask_for_everything() -> None:
    _, stream = _hub()
    for number in range(sse.MOST_WAITING + 1):
        stream.queue(f"live:{number}")
    assert list(stream.waiting) == [sse.STALE]


def test_a_page_that_was_away_too_long_asks_for_everything(people: Personas) -> None:
    listener = _listener(people.bob, people.vision)
    LiveEvent.objects.all().delete()
    for number in (500, 501):
        LiveEvent.objects.create(pk=number, topic=people.vision.pk, what="members")
    assert sse._missed_events(listener, 3) == [sse.STALE]
    assert sse._missed_events(listener, 500) == ["live:members"]
    assert sse._missed_events(listener, 501) == []


def test_what_changes_below_is_written_down_and_swept(
    people: Personas,
    monkeypatch: pytest.MonkeyPatch,
    django_capture_on_commit_callbacks: Any,
) -> None:
    old = LiveEvent.objects.create(topic="prj_1", what="x")
    LiveEvent.objects.filter(pk=old.pk).update(at=clock.now() - KEPT - timedelta(seconds=1))
    monkeypatch.setattr(wiring, "_last_sweep_s", [-1000.0])
    with django_capture_on_commit_callbacks(execute=True):
        change_project(project=people.vision, name="New name")
    left = LiveEvent.objects.values_list("topic", "what")
    assert list(left) == [(people.vision.pk, "project")]
