"""The people of the tests, and a client that speaks the REST API for one of them."""

from dataclasses import dataclass
from typing import Any, cast

import orjson
from django.http import HttpResponse
from django.test import Client

from portal.accounts.models import Membership, Project, User
from portal.accounts.principal import Principal
from portal.accounts.services.projects import create_project
from portal.accounts.services.tokens import create_token
from slipway.schemas.accounts import SERVICE_SCOPES, Role, Scope

PASSWORD = "correct-horse-battery"


@dataclass(frozen=True)
class Personas:
    """Alice owns `vision`; Mia maintains, Bob contributes, Vera views; Charlie owns `other`."""

    alice: User
    mia: User
    bob: User
    vera: User
    charlie: User
    root: User
    vision: Project
    other: Project


def make_user(name: str, **changes: Any) -> User:
    """Make a person with the e-mail address `<name>@example.org`."""
    fields: dict[str, Any] = {"password": PASSWORD, "name": name.title()} | changes
    return User.objects.create_user(f"{name}@example.org", **fields)


def make_token(user: User, *, scopes: list[Scope] | None = None, **changes: Any) -> str:
    """Make a token of the person, with every scope unless told otherwise; returns the secret."""
    if scopes is None:
        scopes = [scope for scope in Scope if scope != Scope.ADMIN or user.is_administrator]
    fields: dict[str, Any] = {"name": "test", "scopes": scopes} | changes
    return create_token(by=Principal(user), **fields).secret


def make_personas() -> Personas:
    """Make everybody and both projects."""
    alice, mia, bob, vera, charlie = map(make_user, ("alice", "mia", "bob", "vera", "charlie"))
    root = make_user("root", is_administrator=True)
    vision = create_project(by=alice, name="Vision")
    for user, role in (
        (mia, Role.MAINTAINER),
        (bob, Role.CONTRIBUTOR),
        (vera, Role.VIEWER),
    ):
        Membership.objects.create(user=user, project=vision, role=role)
    other = create_project(by=charlie, name="Other")
    return Personas(alice, mia, bob, vera, charlie, root, vision, other)


class Api:
    """The REST API as one person sees it: `Api.of(alice).get("projects")`."""

    def __init__(self, token: str | None = None) -> None:
        self.token = token
        self.client = Client()

    @classmethod
    def of(cls, user: User, **token: Any) -> "Api":
        """A client with a fresh token of the person."""
        return cls(make_token(user, **token))

    def call(
        self, method: str, path: str, body: Any = None, *, key: str | None = None, **headers: str
    ) -> HttpResponse:
        """Send one request; `body` is sent as JSON unless it is bytes.

        `path` is below /api/v1/ unless it begins with a slash.
        """
        if self.token:
            headers.setdefault("Authorization", f"Bearer {self.token}")
        if key:
            headers["Idempotency-Key"] = key
        data = body if isinstance(body, bytes) else b"" if body is None else orjson.dumps(body)
        address = path if path.startswith("/") else f"/api/v1/{path}"
        answer: Any = self.client.generic(
            method, address, data, content_type="application/json", headers=headers
        )
        return cast("HttpResponse", answer)

    def get(self, path: str, **headers: str) -> HttpResponse:
        return self.call("GET", path, **headers)

    def post(self, path: str, body: Any = None, **options: Any) -> HttpResponse:
        return self.call("POST", path, body, **options)

    def patch(self, path: str, body: Any) -> HttpResponse:
        return self.call("PATCH", path, body)

    def put(self, path: str, body: Any) -> HttpResponse:
        return self.call("PUT", path, body)

    def delete(self, path: str) -> HttpResponse:
        return self.call("DELETE", path)


def service_account_of(people: Personas, name: str = "robot") -> Api:
    """Create a service account that maintains `vision`, and return a client with its token."""
    alice, path = Api.of(people.alice), "projects/vision/service-accounts"
    assert alice.post(path, {"name": name, "role": "maintainer"}).status_code == 201
    body = {"name": "test", "scopes": sorted(SERVICE_SCOPES)}
    return Api(json_of(alice.post(f"{path}/{name}/tokens", body))["token"])


def whole_list(api: Api, path: str) -> list[Any]:
    """Return all items of a bare list, part by part."""
    answer = api.get(path)
    items = list(json_of(answer))
    while cursor := answer.headers.get("X-Slipway-Next-Cursor"):
        answer = api.get(f"{path}?cursor={cursor}")
        items += json_of(answer)
    return items


def json_of(response: HttpResponse) -> Any:
    """Parse the body of an answer."""
    return orjson.loads(response.content)
