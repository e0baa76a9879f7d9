"""People as administrators see them."""

from slipway.connection import Connection
from slipway.pages import Pages
from slipway.resources.requests import build
from slipway.schemas.accounts import AccountChange, AccountOut
from slipway.schemas.base import PageOf


class Users:
    """All accounts, for administrators only."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list(self, *, search: str | None = None) -> Pages[AccountOut]:
        """List people, or those whose name or e-mail address holds `search`."""
        return Pages(self._connection, ("users",), PageOf[AccountOut], {"q": search})

    def edit(
        self,
        user_id: str,
        *,
        is_active: bool | None = None,
        is_administrator: bool | None = None,
        hand_over_to: str | None = None,
    ) -> AccountOut:
        """Suspend or reinstate a person, or make one an administrator.

        The person with the id `hand_over_to` takes over what a suspended one is the last owner of.
        """
        body = build(
            AccountChange,
            is_active=is_active,
            is_administrator=is_administrator,
            hand_over_to=hand_over_to,
        )
        return self._connection.fetch(AccountOut, "PATCH", "users", user_id, body=body)
