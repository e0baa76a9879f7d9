"""Suspended people and ended credentials open nothing, by whichever route and verb.

The matrix asks in the name of a person who was suspended long ago, and of expired and revoked
tokens. Here the credentials worked a moment ago, and a job of the person runs on.
"""

from collections.abc import Callable
from datetime import timedelta
from http.cookies import SimpleCookie
from typing import Any

import pytest
from django.conf import settings
from django.contrib.sessions.models import Session
from django.db import transaction
from django.test import Client

from portal.accounts.gates import Administrator, ProjectRole, SignedIn, TeamRole
from portal.accounts.models import ApiToken, User
from portal.accounts.services.people import sign_out_everywhere
from portal.accounts.services.tokens import revoke_all_tokens
from portal.core import clock
from portal.endpoints.gates import EndpointRole
from portal.workloads.gates import WorkloadRole
from tests.matrix.actors import TO_SIGN_IN, Actor, Cast, cell_of
from tests.matrix.world import values_for
from tests.personas import json_of
from tests.portal.accounts.browser import Browser
from tests.routes import Route, routes
from tests.turns import asked_all, thorough_after

_SHUT = frozenset({"401", "403", "404", "405", TO_SIGN_IN})
_GUARDED = SignedIn | Administrator | TeamRole | ProjectRole | WorkloadRole | EndpointRole
_UNSAFE = frozenset({"POST", "PUT", "PATCH", "DELETE"})


def _suspend(user: User) -> None:
    User.objects.filter(pk=user.pk).update(is_active=False)


def _expire(user: User) -> None:
    past = clock.now() - timedelta(seconds=1)
    ApiToken.objects.filter(user=user).update(expires_at=past)
    Session.objects.update(expire_date=past)


def _revoke(user: User) -> None:
    revoke_all_tokens(user=user)
    sign_out_everywhere(user=user)


def _change_password(user: User) -> None:
    user.set_password("another-long-phrase")
    user.save(update_fields=["password"])
    revoke_all_tokens(user=user)


_ENDS: dict[str, Callable[[User], None]] = {
    "suspended": _suspend,
    "expired": _expire,
    "revoked": _revoke,
    "password": _change_password,
}


def _credentials(cast: Cast, *, job: bool) -> list[Actor]:
    alice = cast.world.people.alice
    browser = Browser()
    browser.sign_in(alice.email)
    session = browser.client.cookies[settings.SESSION_COOKIE_NAME].value
    actors = [Actor(alice, token=cast._tokens["own"]), Actor(alice, session=session)]
    return [*actors, Actor(alice, token=cast._tokens["wld"])] if job else actors


def _asked(route: Route) -> list[str]:
    """Return the verbs to ask with: those an operation takes, or a page's."""
    verbs = sorted(route.methods) if route.operations else ["GET", "POST"]
    return [verb for verb in verbs if isinstance(route.policy_for(verb), _GUARDED)]


def _is_in(cast: Cast, actor: Actor) -> bool:
    client = Client(raise_request_exception=False)
    client.cookies = SimpleCookie(
        {settings.SESSION_COOKIE_NAME: actor.session} if actor.session else {}
    )
    headers = {"Authorization": f"Bearer {actor.token}"} if actor.token else {}
    answer: Any = client.get("/api/v1/whoami", headers=headers)
    return bool(answer.status_code == 200 and json_of(answer)["user"]["id"])


def _routes(end: str) -> tuple[Route, ...]:
    """Return every second route: of two endings, each route is asked after one."""
    return routes() if asked_all() else routes()[list(_ENDS).index(end) % 2 :: 2]


@pytest.mark.parametrize("end", thorough_after(2, list(_ENDS)))
def test_what_has_ended_opens_no_route(cast: Cast, end: str) -> None:
    # A job of somebody who only changed the password, or whose token expired, works on.
    actors = _credentials(cast, job=end == "suspended")
    assert all(_is_in(cast, actor) for actor in actors), "they worked a moment ago"
    _ENDS[end](cast.world.people.alice)
    passed, attempts = [], 0
    for route in _routes(end):
        values = values_for(route, cast.world.own)
        for verb in _asked(route):
            for actor in actors:
                if actor.token and not route.is_api:
                    continue  # pages know no tokens
                with transaction.atomic(), transaction.atomic(using="tracking"):
                    cell = cell_of(cast.ask(actor, route, verb, values))
                    transaction.set_rollback(True)
                    transaction.set_rollback(True, using="tracking")
                attempts += 1
                if cell not in _SHUT:
                    passed.append(f"{verb} {route.template}: {cell} with {actor}")
    assert attempts > 150
    assert not passed
