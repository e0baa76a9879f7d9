"""Members and invitations of projects and teams, shared by both command groups."""

from dataclasses import dataclass

from slipway.cli.pagination import collect, show_list
from slipway.cli.prompts import confirm
from slipway.cli.session import Session
from slipway.cli.tables import CellOverflow, ListColumn
from slipway.errors import NotFound
from slipway.schemas.accounts import InvitationCreated, MemberOut, Role


@dataclass(frozen=True)
class Group:
    """The slug of a project or of a team. The other one is None."""

    project: str | None = None
    team: str | None = None

    def __str__(self) -> str:
        return f"project {self.project}" if self.project else f"team {self.team}"


def show_members(session: Session, group: Group, *, limit: int, cursor: str | None) -> None:
    """Print the members of the group."""
    pages = session.client.members.list(project=group.project, team=group.team)
    show_list(
        session,
        collect(pages, limit=limit, cursor=cursor),
        columns=[
            ListColumn("E-mail", fit=CellOverflow.WRAPPED),
            ListColumn("Name", fit=CellOverflow.WRAPPED, dispensable=3),
            ListColumn("Role"),
            ListColumn("From", dispensable=2),
            ListColumn("Since", dispensable=4),
            ListColumn("User id", dispensable=5, style="dim"),
        ],
        row=lambda m: (m.user.email, m.user.name, m.role, m.source, m.since, m.user.id),
        key=lambda m: m.user.id,
        nothing="There are no members.",
    )


def set_role(session: Session, group: Group, user: str, role: Role) -> None:
    """Change the role of a member, given by e-mail address or id."""
    member = session.client.members.set_role(
        _user_id(session, group, user), role, project=group.project, team=group.team
    )
    _show_member(session, member)
    session.output.note(f"{member.user.email} is now {member.role} of {group}.")


def remove(session: Session, group: Group, user: str, *, yes: bool) -> None:
    """Remove a member, given by e-mail address or id."""
    user_id = _user_id(session, group, user)
    confirm(f"Remove {user} from {group}? Access ends at once.", yes=yes, output=session.output)
    session.client.members.remove(user_id, project=group.project, team=group.team)
    if session.output.as_json:
        session.output.document({"removed": user_id})
    session.output.note(f"{user} no longer belongs to {group}.")


def invite(session: Session, group: Group, email: str, role: Role, days: int) -> None:
    """Invite an address and print the link, which is shown only once."""
    invitation: InvitationCreated = session.client.invitations.create(
        email, role=role, expires_in_days=days, project=group.project, team=group.team
    )
    if session.output.as_json:
        session.output.document(invitation)
        return
    session.output.note(
        f"{invitation.email} is invited to {group} as {invitation.role}. The link is shown only "
        f"once and works for {days} days, for that address:"
    )
    session.output.line(invitation.link)


def show_invitations(session: Session, group: Group, *, limit: int, cursor: str | None) -> None:
    """Print the invitations to the group."""
    pages = session.client.invitations.list(project=group.project, team=group.team)
    show_list(
        session,
        collect(pages, limit=limit, cursor=cursor),
        columns=[
            ListColumn("Id"),
            ListColumn("E-mail", fit=CellOverflow.WRAPPED),
            ListColumn("Role"),
            ListColumn("State"),
            ListColumn("Invited by", fit=CellOverflow.WRAPPED, dispensable=3),
            ListColumn("Expires", dispensable=2),
        ],
        row=lambda i: (i.id, i.email, i.role, i.state, i.invited_by, i.expires_at),
        key=lambda i: i.id,
        nothing=f"There are no invitations to {group}.",
    )


def withdraw(session: Session, group: Group, invitation_id: str, *, yes: bool) -> None:
    """Withdraw an invitation."""
    confirm(
        f"Withdraw the invitation {invitation_id} to {group}? Its link stops working.",
        yes=yes,
        output=session.output,
    )
    session.client.invitations.withdraw(invitation_id, project=group.project, team=group.team)
    if session.output.as_json:
        session.output.document({"withdrawn": invitation_id})
    session.output.note("The invitation is withdrawn.")


def _user_id(session: Session, group: Group, user: str) -> str:
    """Return the id of `user`. An e-mail address is looked up among the members."""
    if "@" not in user:
        return user
    for member in session.client.members.list(project=group.project, team=group.team):
        if member.user.email.casefold() == user.casefold():
            return member.user.id
    raise NotFound(
        f"{user} does not belong to {group}.",
        next_step=f"See who does with `slipway {'project' if group.project else 'team'} members`.",
    )


def _show_member(session: Session, member: MemberOut) -> None:
    if session.output.as_json:
        session.output.document(member)
    elif session.output.quiet:
        session.output.line(member.user.id)
