"""The caller's own API tokens."""

from collections.abc import Sequence

from slipway.connection import Connection
from slipway.pages import Pages
from slipway.resources.requests import build
from slipway.schemas.accounts import Scope, TokenCreated, TokenIn, TokenOut, TokenPreset
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
        scopes: Sequence[Scope | str] = (),
        *,
        preset: TokenPreset | str | None = None,
        project: str | None = None,
        expires_in_days: int | None = None,
    ) -> TokenCreated:
        """Create a token with `scopes` or a `preset`, restricted to `project` if that is given.

        Presets are `command-line`, `mlflow`, `read-only`, `ci` and `everything`.
        """
        body = build(
            TokenIn,
            name=name,
            preset=preset,
            scopes=list(scopes) or None,
            project=project,
            expires_in_days=expires_in_days,
        )
        return self._connection.fetch(TokenCreated, "POST", "tokens", body=body)

    def revoke(self, token_id: str) -> None:
        """Revoke a token at once."""
        self._connection.send("DELETE", "tokens", token_id)
