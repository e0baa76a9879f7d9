"""A valid body for every operation that takes one, so that who may act really acts."""

from collections.abc import Callable
from typing import Any

from portal.accounts.models import User
from tests.matrix.world import World
from tests.personas import PASSWORD

Body = dict[str, Any] | bytes
Maker = Callable[[World, User | None], Body]


def _accept(world: World, user: User | None) -> Body:
    return {"token": world.links[user.pk] if user else "A" * 40}


def _sign_in(_world: World, user: User | None) -> Body:
    return {"login": user.email if user else "nobody@example.org", "password": PASSWORD}


_INVITE_BY_FORM = {"email": "new@example.org", "role": "viewer", "expires_in_days": "7"}
# By verb and template. JSON for the API; a form for a page.
BODIES: dict[tuple[str, str], Body | Maker] = {
    ("POST", "/api/v1/tokens"): {"name": "ci", "scopes": ["projects:read"]},
    ("POST", "/api/v1/projects"): {"name": "New project"},
    ("PATCH", "/api/v1/projects/{project}"): {"name": "Renamed"},
    ("PATCH", "/api/v1/projects/{project}/members/{user_id}"): {"role": "viewer"},
    ("POST", "/api/v1/projects/{project}/invitations"): {
        "email": "new@example.org",
        "role": "viewer",
    },
    ("PUT", "/api/v1/projects/{project}/secrets/{name}"): {"value": "new"},
    ("POST", "/api/v1/projects/{project}/files"): b"bytes of a file",
    ("POST", "/api/v1/projects/{project}/files/signed-url"): {"name": "b.csv"},
    ("POST", "/api/v1/files/{file_id}/signed-url"): {"expires_in_seconds": 60},
    ("PUT", "/api/v1/files/{file_id}/content"): b"bytes of a file",
    ("POST", "/api/v1/teams"): {"name": "New team"},
    ("PATCH", "/api/v1/teams/{team}"): {"name": "Renamed"},
    ("PATCH", "/api/v1/teams/{team}/members/{user_id}"): {"role": "viewer"},
    ("POST", "/api/v1/teams/{team}/invitations"): {"email": "new@example.org", "role": "viewer"},
    ("POST", "/api/v1/invitations/accept"): _accept,
    ("PATCH", "/api/v1/users/{user_id}"): {"is_active": False},
    ("POST", "/projects/new"): {"name": "New project"},
    ("POST", "/p/{project}/settings"): {"name": "Renamed"},
    ("POST", "/p/{project}/archive"): {"confirm": "vision"},
    ("POST", "/p/{project}/members/invite"): _INVITE_BY_FORM,
    ("POST", "/p/{project}/members/{user}/role"): {"role": "viewer"},
    ("POST", "/p/{project}/secrets/write"): {"name": "NEW_KEY", "value": "new"},
    ("POST", "/teams/new"): {"name": "New team"},
    ("POST", "/t/{team}/settings"): {"name": "Renamed"},
    ("POST", "/t/{team}/members/invite"): _INVITE_BY_FORM,
    ("POST", "/t/{team}/members/{user}/role"): {"role": "viewer"},
    ("POST", "/settings/profile"): {"name": "Somebody"},
    ("POST", "/settings/sessions/end"): {"keep": "this"},
    ("POST", "/settings/tokens/new"): {
        "name": "ci",
        "scopes": "projects:read",
        "expires_in_days": "30",
    },
    ("POST", "/settings/people/{person}/change"): {"do": "promote"},
    ("POST", "/account/login"): _sign_in,
    ("POST", "/account/password/reset"): {"email": "nobody@example.org"},
    ("POST", "/account/password/change"): {
        "oldpassword": PASSWORD,
        "password1": "another-long-phrase",
        "password2": "another-long-phrase",
    },
}
# What has to stand behind the path, by verb and template.
QUERIES = {("POST", "/api/v1/projects/{project}/files"): "?name=b.csv"}


def query_for(verb: str, template: str) -> str:
    """Return the query to send; empty where none is needed."""
    return QUERIES.get((verb, template), "")


def body_for(verb: str, template: str, world: World, user: User | None) -> Body:
    """Return the body to send; empty where none is known."""
    found = BODIES.get((verb, template), {})
    return found(world, user) if callable(found) else found
