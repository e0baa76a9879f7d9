"""`slipway audit`: list and export the audit log."""

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from slipway.cli.completion import complete_project
from slipway.cli.dates import parse_time
from slipway.cli.exits import UsageMistake
from slipway.cli.output import NOTHING
from slipway.cli.pagination import DEFAULT_LIMIT, Cursor, Limit, collect, show_list
from slipway.cli.project import Yes
from slipway.cli.prompts import confirm
from slipway.cli.session import Session, command
from slipway.cli.tables import CellOverflow, ListColumn
from slipway.cli.transfer import receive, receive_file
from slipway.schemas.accounts import AuditOut

app = typer.Typer(no_args_is_help=True, help="The audit log: actor, change, address.")

Actor = Annotated[str | None, typer.Option("--actor", help="E-mail address of the actor.")]
Verb = Annotated[str | None, typer.Option("--verb", help="Action, for example project.create.")]
TargetKind = Annotated[
    str | None, typer.Option("--target-kind", help="Kind of the changed object, for example token.")
]
Since = Annotated[
    str | None, typer.Option("--since", help="From this time on: 2026-11-20, or 7d (ago).")
]
Until = Annotated[str | None, typer.Option("--until", help="Up to this time.")]


class FileFormat(StrEnum):
    """Format of an exported file."""

    CSV = "csv"
    JSONL = "jsonl"


def changes_of(before: dict[str, Any] | None, after: dict[str, Any] | None) -> str:
    """Return the changed fields as `name: before → after`. A new object has only values."""
    old, new = before or {}, after or {}
    parts = []
    for name in dict.fromkeys([*old, *new]):
        if old.get(name) != new.get(name):
            was = json.dumps(old[name]) if name in old else NOTHING
            became = json.dumps(new[name]) if name in new else NOTHING
            parts.append(f"{name}: {became}" if before is None else f"{name}: {was} → {became}")
    return ", ".join(parts)


def _row(event: AuditOut) -> tuple[object, ...]:
    return (
        event.at,
        event.actor,
        event.verb,
        f"{event.target_kind} {event.target_label}",
        event.project or event.team,
        changes_of(event.before, event.after),
        event.ip,
        event.request_id,
    )


@command(app, "list")
def list_audit(
    session: Session,
    project: Annotated[
        str | None,
        typer.Option(
            "--project",
            "-p",
            metavar="PROJECT",
            help="Only events of this project.",
            autocompletion=complete_project,
        ),
    ] = None,
    actor: Actor = None,
    verb: Verb = None,
    target_kind: TargetKind = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> None:
    """List the changes you may see, newest first."""
    pages = session.client.audit.list(
        project=project,
        actor=actor,
        verb=verb,
        target_kind=target_kind,
        since=parse_time(since, option="--since"),
        until=parse_time(until, option="--until"),
    )
    show_list(
        session,
        collect(pages, limit=limit, cursor=cursor),
        columns=[
            ListColumn("At"),
            ListColumn("Actor", fit=CellOverflow.WRAPPED),
            ListColumn("Verb"),
            ListColumn("Target", fit=CellOverflow.WRAPPED),
            ListColumn("Where", dispensable=2),
            ListColumn("Change", fit=CellOverflow.CLIPPED, dispensable=3),
            ListColumn("From", dispensable=4),
            ListColumn("Request", dispensable=5, style="dim"),
        ],
        row=_row,
        key=lambda event: event.id,
        nothing="No event matches.",
    )


@command(app, "export")
def export(
    session: Session,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File to write; standard output if left out."),
    ] = None,
    format: Annotated[  # noqa: A002  (the word of the API)
        FileFormat, typer.Option("--format", help="Format of the file.")
    ] = FileFormat.CSV,
    actor: Actor = None,
    verb: Verb = None,
    target_kind: TargetKind = None,
    since: Since = None,
    until: Until = None,
    yes: Yes = False,
) -> None:
    """Export the changes you may see as one file, newest first."""
    if output is None and (session.output.as_json or sys.stdout.isatty()):
        raise UsageMistake(
            "The export needs an output file.", next_step="Add --output audit.csv to the command."
        )
    if output is not None and output.exists():
        confirm(f"Replace the file {output}?", yes=yes, output=session.output)
    download = session.client.audit.export(
        format="jsonl" if format is FileFormat.JSONL else "csv",
        actor=actor,
        verb=verb,
        target_kind=target_kind,
        since=parse_time(since, option="--since"),
        until=parse_time(until, option="--until"),
    )
    with download as content:
        if output is None:
            receive(session, content, sys.stdout.buffer, label="Exporting")
            return
        size_bytes = receive_file(session, content, output, label="Exporting")
    if session.output.as_json:
        session.output.document(
            {"path": str(output), "size_bytes": size_bytes, "format": format.value}
        )
    elif session.output.quiet:
        session.output.line(str(output))
    session.output.note(f"{output}: {size_bytes:,} bytes.")
