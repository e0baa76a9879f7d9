"""`slipway secret`: write-only values for the workloads of a project."""

from typing import Annotated

import typer

from slipway.cli.pagination import DEFAULT_LIMIT, Cursor, Limit, collect, show_list
from slipway.cli.project import ProjectOption, Yes
from slipway.cli.prompts import confirm, read_secret
from slipway.cli.session import Session, command
from slipway.cli.tables import CellOverflow, ListColumn

app = typer.Typer(no_args_is_help=True, help="Secrets of a project: set, list, delete.")

NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the secret, for example HF_TOKEN.")
]


@command(app, "set")
def set_secret(session: Session, name: NameArgument, project: ProjectOption = None) -> None:
    """Write a secret: typed without echo, or read from standard input.

    One line break at the end of standard input is taken off. The value is never an argument,
    because other people on this machine could read it there.
    """
    slug = session.project(project)
    client = session.client
    value = read_secret(f"Value of {name}")
    secret = client.secrets.set(name, value, project=slug)
    if session.output.as_json:
        session.output.document(secret)
    elif session.output.quiet:
        session.output.line(secret.name)
    session.output.note(f"{secret.name} is written to project {slug}.")


@command(app, "list")
def list_secrets(
    session: Session,
    project: ProjectOption = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> None:
    """List names and dates. Values are never shown."""
    pages = session.client.secrets.list(project=session.project(project))
    show_list(
        session,
        collect(pages, limit=limit, cursor=cursor),
        columns=[
            ListColumn("Name", style="bold"),
            ListColumn("Changed"),
            ListColumn("By", fit=CellOverflow.WRAPPED, dispensable=1),
            ListColumn("Created", dispensable=2),
        ],
        row=lambda s: (s.name, s.updated_at, s.updated_by, s.created_at),
        key=lambda s: s.name,
        nothing="The project has no secret. Write one: slipway secret set NAME",
    )


@command(app, "delete")
def delete(
    session: Session, name: NameArgument, project: ProjectOption = None, yes: Yes = False
) -> None:
    """Delete a secret. Workloads that start later do not get it."""
    slug = session.project(project)
    confirm(
        f"Delete the secret {name} of project {slug}? It cannot be restored.",
        yes=yes,
        output=session.output,
    )
    session.client.secrets.delete(name, project=slug)
    if session.output.as_json:
        session.output.document({"deleted": name, "project": slug})
    session.output.note(f"{name} is deleted from project {slug}.")
