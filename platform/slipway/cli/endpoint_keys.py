"""`slipway endpoint keys`: API keys for clients of an endpoint."""

from typing import Annotated

import typer

from slipway.cli.pagination import DEFAULT_LIMIT, Cursor, Limit, collect, show_list
from slipway.cli.project import ProjectOption, Yes
from slipway.cli.prompts import confirm
from slipway.cli.session import Session, command
from slipway.cli.tables import ListColumn
from slipway.schemas.endpoints import EndpointKeyCreated

app = typer.Typer(no_args_is_help=True, help="API keys for clients of an endpoint.")

EndpointArgument = Annotated[str, typer.Argument(metavar="ENDPOINT", help="Name of the endpoint.")]


@command(app, "list")
def list_keys(
    session: Session,
    endpoint: EndpointArgument,
    project: ProjectOption = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> None:
    """List the keys of an endpoint, newest first, without their text."""
    pages = session.client.endpoints.keys.list(endpoint, project=session.project(project))
    show_list(
        session,
        collect(pages, limit=limit, cursor=cursor),
        columns=[
            ListColumn("Id", style="bold"),
            ListColumn("Name"),
            ListColumn("Begins with"),
            ListColumn("May"),
            ListColumn("Expires"),
            ListColumn("Revoked", dispensable=1),
        ],
        row=lambda key: (
            key.id,
            key.name,
            key.prefix,
            ", ".join(key.scopes),
            key.expires_at,
            key.revoked_at,
        ),
        key=lambda key: key.id,
        nothing="There is no key yet. Create one: slipway endpoint keys create ENDPOINT NAME",
    )


@command(app, "create")
def create_key(
    session: Session,
    endpoint: EndpointArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the client.")],
    scope: Annotated[
        list[str] | None, typer.Option("--scope", help="predict (the default) or read. Repeatable.")
    ] = None,
    expires_in_days: Annotated[
        int | None,
        typer.Option("--days", min=1, max=3650, help="Days until the key expires (never)."),
    ] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", help="Maximum requests per second (no limit).")
    ] = None,
    project: ProjectOption = None,
) -> None:
    """Create a key. Its text is shown only once."""
    made = session.client.endpoints.keys.create(
        endpoint,
        name,
        project=session.project(project),
        scopes=scope or None,
        expires_in_days=expires_in_days,
        rate_per_s=rate,
    )
    _show_key(session, made)


def _show_key(session: Session, made: EndpointKeyCreated) -> None:
    if session.output.as_json:
        session.output.document(made)
    elif session.output.quiet:
        session.output.line(made.key)
    else:
        session.output.facts(
            {
                "Key": made.key,
                "Id": made.id,
                "Name": made.name,
                "May": made.scopes,
                "Expires": made.expires_at,
            }
        )
        session.output.note("Copy the key now. It is shown only once.")


@command(app, "revoke")
def revoke_key(
    session: Session,
    endpoint: EndpointArgument,
    key: Annotated[str, typer.Argument(metavar="KEY", help="Id of the key.")],
    yes: Yes = False,
    project: ProjectOption = None,
) -> None:
    """Revoke a key. Gateways refuse it within seconds."""
    place = session.project(project)
    confirm(
        f"Revoke the key {key} of {endpoint}? Its clients are refused from then on.",
        yes=yes,
        output=session.output,
    )
    session.client.endpoints.keys.revoke(endpoint, key, project=place)
    session.output.note("Revoked.")
