"""Service accounts of a project, and their tokens."""

from collections.abc import Sequence

from slipway.connection import Connection
from slipway.pages import Pages
from slipway.resources.requests import build
from slipway.schemas.accounts import (
    Role,
    Scope,
    ServiceAccountChange,
    ServiceAccountIn,
    ServiceAccountOut,
    ServiceTokenCreated,
    ServiceTokenIn,
    ServiceTokenOut,
    TokenPreset,
)
from slipway.schemas.base import PageOf


class ServiceAccounts:
    """Service accounts: identities of one project, for automation. `name` is the name of one.

    Only the response of `create_token` contains the token itself.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list(self, *, project: str, search: str | None = None) -> Pages[ServiceAccountOut]:
        """List accounts whose name or description contains `search`, newest first."""
        segments = ("projects", project, "service-accounts")
        return Pages(self._connection, segments, PageOf[ServiceAccountOut], {"q": search})

    def get(self, name: str, *, project: str) -> ServiceAccountOut:
        """Return one account."""
        return self._connection.fetch(ServiceAccountOut, "GET", *_path(project, name))

    def create(
        self,
        name: str,
        *,
        project: str,
        role: Role | str | None = None,
        description: str | None = None,
    ) -> ServiceAccountOut:
        """Create an account: viewer, contributor (the default) or maintainer of the project."""
        body = build(ServiceAccountIn, name=name, role=role, description=description)
        segments = ("projects", project, "service-accounts")
        return self._connection.fetch(ServiceAccountOut, "POST", *segments, body=body)

    def edit(
        self,
        name: str,
        *,
        project: str,
        role: Role | str | None = None,
        description: str | None = None,
    ) -> ServiceAccountOut:
        """Change the role or the description of an account."""
        body = build(ServiceAccountChange, role=role, description=description)
        return self._connection.fetch(ServiceAccountOut, "PATCH", *_path(project, name), body=body)

    def disable(self, name: str, *, project: str) -> ServiceAccountOut:
        """Disable an account: its tokens stop at once, and its schedules pause."""
        return self._connection.fetch(ServiceAccountOut, "POST", *_path(project, name), "disable")

    def enable(self, name: str, *, project: str) -> ServiceAccountOut:
        """Enable an account. Its schedules stay paused until they are resumed."""
        return self._connection.fetch(ServiceAccountOut, "POST", *_path(project, name), "enable")

    def delete(self, name: str, *, project: str) -> None:
        """Delete an account with its tokens. Its schedules pause, and history keeps its name."""
        self._connection.send("DELETE", *_path(project, name))

    def tokens(self, name: str, *, project: str) -> Pages[ServiceTokenOut]:
        """List the tokens of an account, those that no longer work included."""
        return Pages(self._connection, (*_path(project, name), "tokens"), PageOf[ServiceTokenOut])

    def create_token(
        self,
        name: str,
        token: str,
        scopes: Sequence[Scope | str] = (),
        *,
        project: str,
        preset: TokenPreset | str | None = None,
        expires_in_days: int | None = None,
    ) -> ServiceTokenCreated:
        """Create the token called `token` of an account, with `scopes` or a `preset`."""
        body = build(
            ServiceTokenIn,
            name=token,
            preset=preset,
            scopes=[*scopes] or None,
            expires_in_days=expires_in_days,
        )
        return self._connection.fetch(
            ServiceTokenCreated, "POST", *_path(project, name), "tokens", body=body
        )

    def revoke_token(self, name: str, token_id: str, *, project: str) -> None:
        """Revoke a token of an account at once."""
        self._connection.send("DELETE", *_path(project, name), "tokens", token_id)


def _path(project: str, name: str) -> tuple[str, ...]:
    return ("projects", project, "service-accounts", name)
