"""Who asks: the columns of the matrix, each with the credentials it stands for."""

from collections import deque
from dataclasses import dataclass
from datetime import timedelta
from http.cookies import SimpleCookie
from typing import Any, cast
from urllib.parse import urlencode

import orjson
from django.conf import settings
from django.http import HttpResponse
from django.test import Client
from django.urls import reverse

from portal.accounts.models import ApiToken, User
from portal.accounts.tokens import hash_of
from portal.core import clock
from portal.notebooks.services.hubs import admit_hub
from slipway.schemas.accounts import Scope
from tests.matrix.bodies import body_for, query_for
from tests.matrix.world import World
from tests.personas import Api, make_token
from tests.routes import Route

# Short heading → what it stands for. Tokens speak to the API; on pages, where tokens count for
# nothing, the first six and the suspended person come with a session.
COLUMNS = {
    "own": "owner",
    "mnt": "maintainer",
    "ctb": "contributor",
    "vwr": "viewer",
    "oth": "member of another tenant",
    "adm": "administrator who is no member",
    "ano": "nobody signed in",
    "exp": "owner's token, expired",
    "rev": "owner's token, revoked",
    "scp": "owner's token with every scope but the one needed",
    "cnf": "owner's token confined to another project",
    "sus": "suspended owner",
    "csf": "owner's browser session without the anti-forgery token",
    "wld": "owner's running job, with the token it was given",
    "nod": "node that runs the owner's job, with its node token",
    "nda": "node that runs another tenant's job, with its node token",
}
TO_SIGN_IN = "LOG"


@dataclass(frozen=True)
class Actor:
    """One column's credentials for one kind of door."""

    user: User | None
    token: str | None = None
    session: str | None = None
    forging: bool = False


class Cast:
    """Everybody of the matrix, ready to ask."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._trusting = Client(raise_request_exception=False)
        self._strict = Client(raise_request_exception=False, enforce_csrf_checks=True)
        people = world.people
        self._signed_in = {
            "own": people.alice,
            "mnt": people.mia,
            "ctb": people.bob,
            "vwr": people.vera,
            "oth": people.charlie,
            "adm": people.root,
            "sus": world.sue,
        }
        self._tokens = {column: make_token(user) for column, user in self._signed_in.items()}
        self._tokens |= self._special_tokens()
        self._sessions = {user.pk: _session_of(user) for user in self._signed_in.values()}

    def _special_tokens(self) -> dict[str, str]:
        alice = self.world.people.alice
        expired, revoked = make_token(alice), make_token(alice)
        past = clock.now() - timedelta(seconds=1)
        ApiToken.objects.filter(token_hash=hash_of(expired)).update(expires_at=past)
        ApiToken.objects.filter(token_hash=hash_of(revoked)).update(revoked_at=past)
        special = {"exp": expired, "rev": revoked}
        special |= {
            "wld": self.world.secrets["workload"],
            "hub": admit_hub(name="matrix").secret,
            "nod": self.world.secrets["node"],
            "nda": self.world.secrets["other node"],
        }
        special["cnf"] = make_token(alice, project=self.world.elsewhere)
        for needed in (None, *Scope):
            kept: list[Scope] = [scope for scope in Scope if scope not in (needed, Scope.ADMIN)]
            special[f"all but {needed}"] = make_token(alice, scopes=kept)
        return special

    def api(self, column: str) -> Api:
        """Return a client of the API with the token of a column."""
        api = Api(self._tokens[column])
        api.client.handler = self._trusting.handler  # the middleware is loaded once
        return api

    def actor(self, column: str, route: Route, verb: str) -> Actor:
        """Return who stands in a column for one cell."""
        user = self._signed_in.get(column)
        alice = self.world.people.alice
        if column == "csf":
            return Actor(alice, session=self._sessions[alice.pk], forging=True)
        if column == "scp":
            needed = getattr(route.policy_for(verb), "scope", None)
            return Actor(alice, token=self._tokens[f"all but {needed}"])
        if route.is_api or user is None:
            return Actor(user, token=self._tokens.get(column))
        return Actor(user, session=self._sessions[user.pk])

    def ask(self, actor: Actor, route: Route, verb: str, values: dict[str, str]) -> HttpResponse:
        """Send one request with a valid body."""
        client = self._strict if actor.forging else self._trusting
        client.cookies = SimpleCookie(
            {settings.SESSION_COOKIE_NAME: actor.session} if actor.session else {}
        )
        headers = {"Authorization": f"Bearer {actor.token}"} if actor.token else {}
        data, content_type = b"", "application/json"
        if verb in ("POST", "PUT", "PATCH", "DELETE"):
            body = body_for(verb, route.template, self.world, actor.user)
            if isinstance(body, bytes):
                data, content_type = body, "application/octet-stream"
            elif route.is_api:
                data = orjson.dumps(body) if body else b""
            else:
                data, content_type = urlencode(body).encode(), "application/x-www-form-urlencoded"
        path = route.path(**values) + query_for(verb, route.template)
        answer: Any = client.generic(verb, path, data, content_type=content_type, headers=headers)
        if answer.streaming and not answer.is_async:
            # What an answer holds is released once it is read.
            deque(answer.streaming_content, maxlen=0)
        return cast("HttpResponse", answer)


def _session_of(user: User) -> str:
    client = Client()
    client.force_login(user)
    return client.cookies[settings.SESSION_COOKIE_NAME].value


def cell_of(answer: HttpResponse) -> str:
    """Write an answer as three characters: its status, or the way to the sign-in page."""
    sign_in = answer.headers.get("Location", "").startswith(reverse(settings.LOGIN_URL))
    return TO_SIGN_IN if sign_in else str(answer.status_code)
