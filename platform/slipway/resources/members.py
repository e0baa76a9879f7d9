"""Members of a project or a team, and their roles."""

from slipway.connection import Connection
from slipway.pages import Pages
from slipway.resources.requests import build, owner_path
from slipway.schemas.accounts import MemberChange, MemberOut, Role
from slipway.schemas.base import PageOf


class Members:
    """Members of a project or a team. Each call names exactly one of the two."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list(self, *, project: str | None = None, team: str | None = None) -> Pages[MemberOut]:
        """List the members. Those of a project include those of its team."""
        segments = (*owner_path(project, team), "members")
        return Pages(self._connection, segments, PageOf[MemberOut])

    def set_role(
        self,
        user_id: str,
        role: Role | str,
        *,
        project: str | None = None,
        team: str | None = None,
    ) -> MemberOut:
        """Change the role of a member. The last owner cannot step down: Conflict."""
        segments = (*owner_path(project, team), "members", user_id)
        body = build(MemberChange, role=role)
        return self._connection.fetch(MemberOut, "PATCH", *segments, body=body)

    def remove(self, user_id: str, *, project: str | None = None, team: str | None = None) -> None:
        """Remove a member. Access ends at once. Conflict for the last owner."""
        self._connection.send("DELETE", *owner_path(project, team), "members", user_id)
