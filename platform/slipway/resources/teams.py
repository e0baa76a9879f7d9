"""Teams: people who share projects."""

from slipway.connection import Connection
from slipway.pages import Pages
from slipway.resources.requests import build
from slipway.schemas.accounts import TeamChange, TeamIn, TeamOut
from slipway.schemas.base import PageOf


class Teams:
    """The teams the caller belongs to."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list(self, *, search: str | None = None) -> Pages[TeamOut]:
        """List teams, or those whose name or slug holds `search`."""
        return Pages(self._connection, ("teams",), PageOf[TeamOut], {"q": search})

    def get(self, slug: str) -> TeamOut:
        """Return one team."""
        return self._connection.fetch(TeamOut, "GET", "teams", slug)

    def create(self, name: str, *, slug: str | None = None) -> TeamOut:
        """Create a team and become its owner."""
        body = build(TeamIn, name=name, slug=slug)
        return self._connection.fetch(TeamOut, "POST", "teams", body=body)

    def edit(self, slug: str, *, name: str | None = None) -> TeamOut:
        """Change the given fields. The slug stays."""
        body = build(TeamChange, name=name)
        return self._connection.fetch(TeamOut, "PATCH", "teams", slug, body=body)
