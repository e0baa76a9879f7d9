"""`slipway service-account`: identities of a project for automation."""

from typing import Annotated

import typer

from slipway.cli.exits import UsageMistake
from slipway.cli.pagination import DEFAULT_LIMIT, Cursor, Limit, collect, show_list
from slipway.cli.project import ProjectOption, Yes
from slipway.cli.prompts import confirm
from slipway.cli.service_account_tokens import AccountArgument
from slipway.cli.service_account_tokens import app as tokens
from slipway.cli.session import Session, command
from slipway.cli.tables import CellOverflow, ListColumn
from slipway.schemas.accounts import Role, ServiceAccountOut

app = typer.Typer(
    no_args_is_help=True,
    help="Service accounts: identities of a project for automation, and their tokens.",
)
app.add_typer(tokens, name="token")
DescriptionOption = Annotated[
    str | None, typer.Option("--description", "-d", metavar="TEXT", help="What it is for.")
]
_ROLES = "viewer, contributor or maintainer"


def _show(session: Session, account: ServiceAccountOut) -> None:
    if session.output.as_json:
        session.output.document(account)
    elif session.output.quiet:
        session.output.line(account.name)
    else:
        session.output.facts(
            {
                "Name": account.name,
                "State": account.state,
                "Role": account.role,
                "Description": account.description,
                "Address": account.address,
                "Tokens": account.tokens,
                "Last used": account.last_used_at,
                "Created by": account.created_by,
                "Created": account.created_at,
            }
        )


@command(app, "list")
def list_accounts(
    session: Session,
    project: ProjectOption = None,
    search: Annotated[
        str | None,
        typer.Option("--search", "-s", help="Only names and descriptions with this text."),
    ] = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> None:
    """List the service accounts of a project, newest first."""
    pages = session.client.service_accounts.list(project=session.project(project), search=search)
    show_list(
        session,
        collect(pages, limit=limit, cursor=cursor),
        columns=[
            ListColumn("Name", fit=CellOverflow.WRAPPED, style="bold"),
            ListColumn("State"),
            ListColumn("Role"),
            ListColumn("Tokens", dispensable=2),
            ListColumn("Last used", dispensable=1),
            ListColumn("Description", fit=CellOverflow.CLIPPED, dispensable=3),
        ],
        row=lambda account: (
            account.name,
            account.state,
            account.role,
            account.tokens,
            account.last_used_at,
            account.description,
        ),
        key=lambda account: account.name,
        nothing="There is no service account yet. Create one: slipway service-account create NAME",
    )


@command(app, "show")
def show_account(session: Session, account: AccountArgument, project: ProjectOption = None) -> None:
    """Show one service account."""
    _show(session, session.client.service_accounts.get(account, project=session.project(project)))


@command(app, "create")
def create(
    session: Session,
    account: AccountArgument,
    role: Annotated[
        Role, typer.Option("--role", metavar="ROLE", help=f"Its role: {_ROLES}.")
    ] = Role.CONTRIBUTOR,
    description: DescriptionOption = None,
    project: ProjectOption = None,
) -> None:
    """Create a service account. Only owners of the project can."""
    slug = session.project(project)
    made = session.client.service_accounts.create(
        account, role=role, description=description, project=slug
    )
    _show(session, made)


@command(app, "edit")
def edit(
    session: Session,
    account: AccountArgument,
    role: Annotated[
        Role | None,
        typer.Option("--role", metavar="ROLE", help=f"New role: {_ROLES}.", show_default=False),
    ] = None,
    description: DescriptionOption = None,
    project: ProjectOption = None,
) -> None:
    """Change the role or the description of a service account. Only owners can."""
    if role is None and description is None:
        raise UsageMistake(
            "Nothing to change is named.",
            field="role",
            next_step="Add --role or --description.",
        )
    slug = session.project(project)
    changed = session.client.service_accounts.edit(
        account, role=role, description=description, project=slug
    )
    _show(session, changed)


@command(app, "disable")
def disable(
    session: Session, account: AccountArgument, project: ProjectOption = None, yes: Yes = False
) -> None:
    """Disable a service account: its tokens stop at once, and its schedules pause."""
    slug = session.project(project)
    confirm(
        f"Disable {account}? Its tokens stop at once, and its schedules pause.",
        yes=yes,
        output=session.output,
    )
    _show(session, session.client.service_accounts.disable(account, project=slug))


@command(app, "enable")
def enable(session: Session, account: AccountArgument, project: ProjectOption = None) -> None:
    """Enable a service account. Its schedules stay paused until they are resumed."""
    slug = session.project(project)
    _show(session, session.client.service_accounts.enable(account, project=slug))


@command(app, "delete")
def delete(
    session: Session, account: AccountArgument, project: ProjectOption = None, yes: Yes = False
) -> None:
    """Delete a service account with its tokens. Its schedules pause; history keeps its name."""
    slug = session.project(project)
    confirm(
        f"Delete {account} of project {slug}? Its tokens end, its schedules pause, and its name "
        "cannot be used again.",
        yes=yes,
        output=session.output,
    )
    session.client.service_accounts.delete(account, project=slug)
    if session.output.as_json:
        session.output.document({"deleted": account, "project": slug})
    session.output.note(f"{account} is deleted from project {slug}.")
