"""Invitations into a project or a team."""

from slipway.connection import Connection
from slipway.pages import Pages
from slipway.resources.requests import build, owner_path
from slipway.schemas.accounts import (
    InvitationAccept,
    InvitationAccepted,
    InvitationCreated,
    InvitationIn,
    InvitationOut,
    Role,
)
from slipway.schemas.base import PageOf


class Invitations:
    """Invitations. A call about those of a project or a team names exactly one of the two."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list(self, *, project: str | None = None, team: str | None = None) -> Pages[InvitationOut]:
        """List the invitations that were made."""
        segments = (*owner_path(project, team), "invitations")
        return Pages(self._connection, segments, PageOf[InvitationOut])

    def create(
        self,
        email: str,
        *,
        role: Role | str = Role.CONTRIBUTOR,
        expires_in_days: int | None = None,
        project: str | None = None,
        team: str | None = None,
    ) -> InvitationCreated:
        """Invite one e-mail address. Only this response contains the link."""
        segments = (*owner_path(project, team), "invitations")
        body = build(InvitationIn, email=email, role=role, expires_in_days=expires_in_days)
        return self._connection.fetch(InvitationCreated, "POST", *segments, body=body)

    def withdraw(
        self, invitation_id: str, *, project: str | None = None, team: str | None = None
    ) -> None:
        """Invalidate the link of an invitation."""
        self._connection.send("DELETE", *owner_path(project, team), "invitations", invitation_id)

    def accept(self, token: str) -> InvitationAccepted:
        """Accept an invitation by the token at the end of its link."""
        body = build(InvitationAccept, token=token)
        return self._connection.fetch(
            InvitationAccepted, "POST", "invitations", "accept", body=body
        )
