"""`slipway token`: your API tokens."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from slipway.cli.completion import complete_project
from slipway.cli.exits import UsageMistake
from slipway.cli.pagination import DEFAULT_LIMIT, Cursor, Limit, collect, show_list
from slipway.cli.project import Yes
from slipway.cli.prompts import confirm
from slipway.cli.session import Session, command
from slipway.cli.tables import CellOverflow, ListColumn
from slipway.schemas.accounts import Scope, TokenOut, TokenPreset, preset_of_scopes

app = typer.Typer(no_args_is_help=True, help="API tokens: create, list, revoke.")

SCOPES = ", ".join(Scope)
PRESETS = ", ".join(TokenPreset)


def state_of(token: TokenOut, now: datetime) -> str:
    """Return the state of a token as one word."""
    if token.revoked_at is not None:
        return "revoked"
    if token.expires_at is not None and token.expires_at <= now:
        return "expired"
    return "active"


@command(app, "list")
def list_tokens(session: Session, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None) -> None:
    """List your tokens, including expired and revoked ones."""
    now = datetime.now(UTC)
    show_list(
        session,
        collect(session.client.tokens.list(), limit=limit, cursor=cursor),
        columns=[
            ListColumn("Id"),
            ListColumn("Name", fit=CellOverflow.WRAPPED),
            ListColumn("Begins", dispensable=3),
            ListColumn("State"),
            ListColumn("Scopes", fit=CellOverflow.CLIPPED, dispensable=5),
            ListColumn("Project", dispensable=4),
            ListColumn("Last used", dispensable=2),
            ListColumn("Expires", dispensable=1),
        ],
        row=lambda t: (
            t.id,
            t.name,
            t.prefix,
            state_of(t, now),
            preset_of_scopes(t.scopes) or t.scopes,
            t.project,
            t.last_used_at,
            t.expires_at,
        ),
        key=lambda t: t.id,
        nothing="You have no token. Create one: slipway token create NAME --preset command-line",
    )


@command(app, "create")
def create(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the token.")],
    preset: Annotated[
        TokenPreset | None,
        typer.Option(
            "--preset",
            metavar="PRESET",
            help=f"Scopes for a purpose: {PRESETS}.",
            show_default=False,
        ),
    ] = None,
    scope: Annotated[
        list[Scope] | None,
        typer.Option(
            "--scope",
            metavar="SCOPE",
            help=f"Scope, instead of a preset. Repeatable: {SCOPES}.",
            show_default=False,
        ),
    ] = None,
    project: Annotated[
        str | None,
        typer.Option(
            "--project",
            "-p",
            metavar="PROJECT",
            help="Restrict the token to this project.",
            autocompletion=complete_project,
        ),
    ] = None,
    days: Annotated[
        int, typer.Option("--days", min=1, max=365, help="Days until the token expires.")
    ] = 90,
) -> None:
    """Create a token and write it to standard output. It is shown only once."""
    if (preset is None) == (not scope):
        raise UsageMistake(
            "A token needs either a preset or scopes.",
            field="preset",
            next_step=f"Add --preset ({PRESETS}), or one --scope for each scope. "
            "See: slipway token create --help",
        )
    token = session.client.tokens.create(
        name, scope or (), preset=preset, project=project, expires_in_days=days
    )
    if session.output.as_json:
        session.output.document(token)
        return
    session.output.note(f"The token {token.name} works for {days} days and is shown only once:")
    session.output.line(token.token)


@command(app, "revoke")
def revoke(
    session: Session,
    token_id: Annotated[
        str, typer.Argument(metavar="ID", help="Id of the token, as `slipway token list` shows it.")
    ],
    yes: Yes = False,
) -> None:
    """Revoke a token immediately."""
    confirm(
        f"Revoke the token {token_id}? Its clients stop working immediately.",
        yes=yes,
        output=session.output,
    )
    session.client.tokens.revoke(token_id)
    if session.output.as_json:
        session.output.document({"revoked": token_id})
    session.output.note("The token is revoked.")
