"""`slipway invitation`: accept or withdraw invitations."""

from typing import Annotated
from urllib.parse import urlsplit

import typer

from slipway.cli import members
from slipway.cli.completion import complete_project, complete_team
from slipway.cli.exits import UsageMistake
from slipway.cli.members import Group
from slipway.cli.project import Yes
from slipway.cli.session import Session, command
from slipway.errors import InvalidInput

app = typer.Typer(no_args_is_help=True, help="Invitations: accept, withdraw.")


def token_of(link: str, server: str) -> str:
    """Return the token at the end of an invitation's link, or `link` where it is a bare token.

    Raises InvalidInput for the link of another server, to which nothing must be sent.
    """
    if "://" not in link:
        return link
    if not link.startswith(f"{server}/"):
        there = urlsplit(link)
        raise InvalidInput(
            f"This link belongs to {there.scheme}://{there.netloc}, not of {server}.",
            field="link",
            next_step=f"Sign in there: slipway login {there.scheme}://{there.netloc}",
        )
    return urlsplit(link).path.rstrip("/").rpartition("/")[2]


@command(app, "accept")
def accept(
    session: Session,
    link: Annotated[str, typer.Argument(metavar="LINK", help="Link of the invitation.")],
) -> None:
    """Accept an invitation to your address."""
    accepted = session.client.invitations.accept(token_of(link, session.url))
    if session.output.as_json:
        session.output.document(accepted)
        return
    session.output.line(accepted.project or accepted.team or "")
    what = f"project {accepted.project}" if accepted.project else f"team {accepted.team}"
    session.output.note(f"You are now {accepted.role} of {what}.")


@command(app, "withdraw")
def withdraw(
    session: Session,
    invitation_id: Annotated[
        str, typer.Argument(metavar="ID", help="Id, as `slipway project invitations` shows it.")
    ],
    project: Annotated[
        str | None,
        typer.Option(
            "--project", "-p", help="Slug of the project.", autocompletion=complete_project
        ),
    ] = None,
    team: Annotated[
        str | None,
        typer.Option("--team", help="Slug of the team.", autocompletion=complete_team),
    ] = None,
    yes: Yes = False,
) -> None:
    """Withdraw an invitation to a project, or with --team to a team."""
    if project is not None and team is not None:
        raise UsageMistake("Both --project and --team are given.", next_step="Give one of the two.")
    group = Group(team=team) if team else Group(project=session.project(project))
    members.withdraw(session, group, invitation_id, yes=yes)
