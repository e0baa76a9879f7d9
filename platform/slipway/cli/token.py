"""`slipway token`: API tokens of one's own."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from slipway.cli.completion import complete_project
from slipway.cli.pagination import DEFAULT_LIMIT, Cursor, Limit, collect, show_list
from slipway.cli.project import Yes
from slipway.cli.prompts import confirm
from slipway.cli.session import Session, command
from slipway.cli.tables import Fit, ListColumn
from slipway.schemas.accounts import Scope, TokenOut

app = typer.Typer(no_args_is_help=True, help="API tokens: make, list, revoke.")

SCOPES = ", ".join(Scope)


def state_of(token: TokenOut, now: datetime) -> str:
    """Return whether a token still works, in a word."""
    if token.revoked_at is not None:
        return "revoked"
    if token.expires_at is not None and token.expires_at <= now:
        return "expired"
    return "active"


@command(app, "list")
def list_tokens(session: Session, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None) -> None:
    """List your tokens, those that no longer work included."""
    now = datetime.now(UTC)
    show_list(
        session,
        collect(session.client.tokens.list(), limit=limit, cursor=cursor),
        columns=[
            ListColumn("Id"),
            ListColumn("Name", fit=Fit.WRAPPED),
            ListColumn("Begins", dispensable=3),
            ListColumn("State"),
            ListColumn("Scopes", fit=Fit.CLIPPED, dispensable=5),
            ListColumn("Project", dispensable=4),
            ListColumn("Last used", dispensable=2),
            ListColumn("Expires", dispensable=1),
        ],
        row=lambda t: (
            t.id,
            t.name,
            t.prefix,
            state_of(t, now),
            t.scopes,
            t.project,
            t.last_used_at,
            t.expires_at,
        ),
        key=lambda t: t.id,
        nothing="You have no token. Make one: slipway token create NAME --scope projects:read",
    )


@command(app, "create")
def create(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it is for.")],
    scope: Annotated[
        list[Scope],
        typer.Option("--scope", metavar="SCOPE", help=f"What it may do; once for each: {SCOPES}."),
    ],
    project: Annotated[
        str | None,
        typer.Option(
            "--project",
            "-p",
            metavar="PROJECT",
            help="Confine it to this project.",
            autocompletion=complete_project,
        ),
    ] = None,
    days: Annotated[
        int, typer.Option("--days", min=1, max=365, help="How many days it works.")
    ] = 90,
) -> None:
    """Make a token and write it to standard output; it is shown only now."""
    token = session.client.tokens.create(name, scope, project=project, expires_in_days=days)
    if session.output.as_json:
        session.output.document(token)
        return
    session.output.note(f"The token {token.name} works for {days} days and is shown only now:")
    session.output.line(token.token)


@command(app, "revoke")
def revoke(
    session: Session,
    token_id: Annotated[
        str, typer.Argument(metavar="ID", help="Id of the token, as `slipway token list` shows it.")
    ],
    yes: Yes = False,
) -> None:
    """Make a token useless at once."""
    confirm(
        f"Revoke the token {token_id}? What uses it stops working at once.",
        yes=yes,
        output=session.output,
    )
    session.client.tokens.revoke(token_id)
    if session.output.as_json:
        session.output.document({"revoked": token_id})
    session.output.note("The token is revoked.")
