"""The caller's own API tokens."""

from collections.abc import Sequence

from slipway.connection import Connection
from slipway.pages import Pages
from slipway.resources.requests import build
from slipway.schemas.accounts import Scope, TokenCreated, TokenIn, TokenOut
from slipway.schemas.base import PageOf


class Tokens:
    """API tokens. Only the response of `create` contains the token itself."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list(self) -> Pages[TokenOut]:
        """List the tokens, those that no longer work included."""
        return Pages(self._connection, ("tokens",), PageOf[TokenOut])

    def create(
        self,
        name: str,
        scopes: Sequence[Scope | str],
        *,
        project: str | None = None,
        expires_in_days: int | None = None,
    ) -> TokenCreated:
        """Create a token with `scopes`, restricted to `project` if that is given."""
        body = build(
            TokenIn,
            name=name,
            scopes=list(scopes),
            project=project,
            expires_in_days=expires_in_days,
        )
        return self._connection.fetch(TokenCreated, "POST", "tokens", body=body)

    def revoke(self, token_id: str) -> None:
        """Revoke a token at once."""
        self._connection.send("DELETE", "tokens", token_id)
