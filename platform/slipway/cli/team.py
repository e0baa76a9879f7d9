"""`slipway team`: create and edit teams, and manage their members."""

from typing import Annotated

import typer

from slipway.cli import members
from slipway.cli.completion import complete_team
from slipway.cli.members import Group
from slipway.cli.pagination import DEFAULT_LIMIT, Cursor, Limit, collect, show_list
from slipway.cli.project import DaysOption, RoleArgument, RoleOption, UserArgument, Yes
from slipway.cli.session import Session, command
from slipway.cli.tables import CellOverflow, ListColumn
from slipway.schemas.accounts import Role, TeamOut

app = typer.Typer(no_args_is_help=True, help="Teams: create, edit, manage members.")
member_app = typer.Typer(no_args_is_help=True, help="Manage the members of a team.")
app.add_typer(member_app, name="member")

TeamArgument = Annotated[
    str,
    typer.Argument(metavar="TEAM", help="Slug of the team.", autocompletion=complete_team),
]


def show(session: Session, team: TeamOut) -> None:
    """Write one team."""
    if session.output.as_json:
        session.output.document(team)
    elif session.output.quiet:
        session.output.line(team.slug)
    else:
        session.output.facts(
            {
                "Slug": team.slug,
                "Name": team.name,
                "Your role": team.role,
                "Created": team.created_at,
                "Id": team.id,
            }
        )


@command(app, "list")
def list_teams(
    session: Session,
    search: Annotated[
        str | None, typer.Option("--search", "-s", help="Only names that contain this text.")
    ] = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> None:
    """List the teams you belong to, newest first."""
    pages = session.client.teams.list(search=search)
    show_list(
        session,
        collect(pages, limit=limit, cursor=cursor),
        columns=[
            ListColumn("Slug", style="bold"),
            ListColumn("Name", fit=CellOverflow.WRAPPED),
            ListColumn("Your role", dispensable=1),
            ListColumn("Created", dispensable=2),
        ],
        row=lambda t: (t.slug, t.name, t.role, t.created_at),
        key=lambda t: t.slug,
        nothing="No team was found. Create one: slipway team create NAME",
    )


@command(app, "create")
def create(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Display name.")],
    slug: Annotated[
        str | None,
        typer.Option("--slug", help="Short name in URLs. Default: derived from the name."),
    ] = None,
) -> None:
    """Create a team that you own."""
    show(session, session.client.teams.create(name, slug=slug))


@command(app, "show")
def show_team(session: Session, team: TeamArgument) -> None:
    """Show one team."""
    show(session, session.client.teams.get(team))


@command(app, "edit")
def edit(
    session: Session,
    team: TeamArgument,
    name: Annotated[str, typer.Option("--name", help="The new name.")],
) -> None:
    """Change the name. The slug never changes."""
    show(session, session.client.teams.edit(team, name=name))


@command(app, "members")
def list_members(
    session: Session, team: TeamArgument, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None
) -> None:
    """List the members of a team."""
    members.show_members(session, Group(team=team), limit=limit, cursor=cursor)


@command(member_app, "set")
def set_member(
    session: Session, team: TeamArgument, user: UserArgument, role: RoleArgument
) -> None:
    """Change the role of a member."""
    members.set_role(session, Group(team=team), user, role)


@command(member_app, "remove")
def remove_member(
    session: Session, team: TeamArgument, user: UserArgument, yes: Yes = False
) -> None:
    """Remove a member. Access to the team's projects ends immediately."""
    members.remove(session, Group(team=team), user, yes=yes)


@command(app, "invite")
def invite(
    session: Session,
    team: TeamArgument,
    email: Annotated[str, typer.Argument(metavar="EMAIL", help="E-mail address to invite.")],
    role: RoleOption = Role.CONTRIBUTOR,
    days: DaysOption = 7,
) -> None:
    """Invite an e-mail address. Only that address can use the link."""
    members.invite(session, Group(team=team), email, role, days)


@command(app, "invitations")
def list_invitations(
    session: Session, team: TeamArgument, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None
) -> None:
    """List the invitations to a team."""
    members.show_invitations(session, Group(team=team), limit=limit, cursor=cursor)
