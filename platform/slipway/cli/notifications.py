"""`slipway notifications`: what needs a person now."""

from typing import Annotated

import typer

from slipway.cli.completion import complete_project
from slipway.cli.session import Session, command
from slipway.cli.tables import CellOverflow, ListColumn
from slipway.schemas.notifications import NotificationOut

app = typer.Typer()


def _row(item: NotificationOut) -> tuple[object, ...]:
    return (
        "you" if item.waits_for_you else "",
        item.project or "",
        item.title,
        item.reason,
        item.next_step,
        item.since,
    )


@command(app, "notifications")
def notifications(
    session: Session,
    project: Annotated[
        str | None,
        typer.Option("--project", "-p", help="Only this project.", autocompletion=complete_project),
    ] = None,
) -> None:
    """Show what needs you: alerts, approval requests, budgets, failed endpoints."""
    shown = session.client.notifications.list(project=project)
    if session.output.as_json:
        session.output.document(shown)
        return
    if session.output.quiet:
        for item in shown.items:
            session.output.line(item.id)
    elif not shown.items:
        session.output.note("Nothing needs you.")
    else:
        session.output.table(
            [
                ListColumn("Waits for"),
                ListColumn("Project"),
                ListColumn("Notification", fit=CellOverflow.WRAPPED),
                ListColumn("Reason", fit=CellOverflow.WRAPPED),
                ListColumn("Next step", fit=CellOverflow.WRAPPED, dispensable=1),
                ListColumn("Since", dispensable=2),
            ],
            [_row(item) for item in shown.items],
        )
    session.output.note_omitted(shown.left_out, "notification")
    if shown.missing_scopes:
        scopes = ", ".join(shown.missing_scopes)
        session.output.note(f"Your token lacks {scopes}, so some kinds are missing.")
