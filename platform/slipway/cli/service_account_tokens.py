"""`slipway service-account token`: tokens of service accounts."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from slipway.cli.exits import UsageMistake
from slipway.cli.pagination import DEFAULT_LIMIT, Cursor, Limit, collect, show_list
from slipway.cli.project import ProjectOption, Yes
from slipway.cli.prompts import confirm
from slipway.cli.session import Session, command
from slipway.cli.tables import CellOverflow, ListColumn
from slipway.cli.token import PRESETS, state_of
from slipway.schemas.accounts import SERVICE_SCOPES, Scope, TokenPreset

app = typer.Typer(no_args_is_help=True, help="Tokens of a service account: create, list, revoke.")
AccountArgument = Annotated[
    str, typer.Argument(metavar="ACCOUNT", help="Name of the service account, such as nightly.")
]
_SCOPES = ", ".join(sorted(SERVICE_SCOPES))


@command(app, "list")
def list_tokens(
    session: Session,
    account: AccountArgument,
    project: ProjectOption = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> None:
    """List the tokens of a service account, including expired and revoked ones."""
    now = datetime.now(UTC)
    pages = session.client.service_accounts.tokens(account, project=session.project(project))
    show_list(
        session,
        collect(pages, limit=limit, cursor=cursor),
        columns=[
            ListColumn("Id"),
            ListColumn("Name", fit=CellOverflow.WRAPPED),
            ListColumn("Begins", dispensable=3),
            ListColumn("State"),
            ListColumn("Scopes", fit=CellOverflow.CLIPPED, dispensable=5),
            ListColumn("Created by", fit=CellOverflow.WRAPPED, dispensable=4),
            ListColumn("Last used", dispensable=2),
            ListColumn("Expires", dispensable=1),
        ],
        row=lambda t: (
            t.id,
            t.name,
            t.prefix,
            state_of(t, now),
            t.scopes,
            t.created_by,
            t.last_used_at,
            t.expires_at,
        ),
        key=lambda t: t.id,
        nothing="It has no token. Create one: "
        "slipway service-account token create ACCOUNT NAME --preset ci",
    )


@command(app, "create")
def create(
    session: Session,
    account: AccountArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the token.")],
    preset: Annotated[
        TokenPreset | None,
        typer.Option(
            "--preset",
            metavar="PRESET",
            help=f"Scopes for a purpose: {PRESETS}. It gets those that service accounts can have.",
            show_default=False,
        ),
    ] = None,
    scope: Annotated[
        list[Scope] | None,
        typer.Option(
            "--scope",
            metavar="SCOPE",
            help=f"Scope, instead of a preset. Repeatable: {_SCOPES}.",
            show_default=False,
        ),
    ] = None,
    days: Annotated[
        int, typer.Option("--days", min=1, max=365, help="Days until the token expires.")
    ] = 90,
    project: ProjectOption = None,
) -> None:
    """Create a token of a service account and write it to standard output. It is shown once."""
    if (preset is None) == (not scope):
        raise UsageMistake(
            "A token needs either a preset or scopes.",
            field="preset",
            next_step=f"Add --preset ({PRESETS}), or one --scope for each scope. "
            "See: slipway service-account token create --help",
        )
    token = session.client.service_accounts.create_token(
        account,
        name,
        scope or (),
        preset=preset,
        expires_in_days=days,
        project=session.project(project),
    )
    if session.output.as_json:
        session.output.document(token)
        return
    session.output.note(f"The token {token.name} works for {days} days and is shown only once:")
    session.output.line(token.token)


@command(app, "revoke")
def revoke(
    session: Session,
    account: AccountArgument,
    token_id: Annotated[
        str, typer.Argument(metavar="ID", help="Id of the token, as the list shows it.")
    ],
    project: ProjectOption = None,
    yes: Yes = False,
) -> None:
    """Revoke a token of a service account immediately."""
    slug = session.project(project)
    confirm(
        f"Revoke the token {token_id} of {account}? Its clients stop working immediately.",
        yes=yes,
        output=session.output,
    )
    session.client.service_accounts.revoke_token(account, token_id, project=slug)
    if session.output.as_json:
        session.output.document({"revoked": token_id})
    session.output.note("The token is revoked.")
