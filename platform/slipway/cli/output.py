"""Output of the command: tables on a terminal, tab-separated text in a pipe, JSON with --json.

Results go to standard output, everything else to standard error. Text from a server is written
with its control characters escaped, and never read as markup.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import IO, Any

from pydantic import BaseModel
from rich.console import Console
from rich.table import Table
from rich.text import Text

from slipway.cli.tables import ListColumn, table_of
from slipway.errors import InvalidInput, SlipwayError
from slipway.sanitize import visible
from slipway.schemas.problem import Problem

Cell = object
NOTHING = "-"
_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
_STATUSES = {"not_logged_in": 401, "connection_failed": 503, "usage": 400, "interrupted": 499}


def console(stream: IO[str]) -> Console:
    """Return a console without markup that honours NO_COLOR and pipes."""
    return Console(file=stream, markup=False, emoji=False, highlight=False, soft_wrap=False)


def format_cell(value: Cell, *, now: datetime | None = None) -> str:
    """Return `value` as one line of text. Times are relative to `now`."""
    if value is None or value == "":
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return distance(value, now) if now else value.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
    if isinstance(value, list | tuple):
        return ", ".join(format_cell(item) for item in value) or NOTHING
    return visible(str(value))


def distance(timestamp: datetime, now: datetime) -> str:
    """Return how far `timestamp` is from `now`, in the largest unit that fits: 5m ago, in 89d."""
    seconds = round((timestamp - now).total_seconds())
    for unit, size in _UNITS:
        count = abs(seconds) // size
        if count:
            return f"in {count}{unit}" if seconds > 0 else f"{count}{unit} ago"
    return "now"


@dataclass(frozen=True)
class Output:
    """Output options of one command."""

    as_json: bool = False
    quiet: bool = False

    def document(self, content: BaseModel | Mapping[str, Any]) -> None:
        """Write one JSON document. Non-ASCII is escaped to protect the terminal."""
        plain = content.model_dump(mode="json") if isinstance(content, BaseModel) else content
        sys.stdout.write(json.dumps(plain, indent=2, default=_json_default) + "\n")

    def line(self, text: str) -> None:
        """Write one line of a result to standard output."""
        sys.stdout.write(visible(text) + "\n")

    def note(self, text: str) -> None:
        """Print a note to standard error, unless --json or --quiet is set."""
        if not self.as_json and not self.quiet:
            sys.stderr.write(visible(text, multiline=True) + "\n")

    def note_omitted(self, count: int, noun: str, plural: str | None = None) -> None:
        """Print how many items the list above omits, if any."""
        if count:
            self.note(f"{count:,} more {noun if count == 1 else plural or f'{noun}s'} not shown.")

    def table(self, columns: Sequence[ListColumn], rows: Sequence[Sequence[Cell]]) -> None:
        """Write a table, tab-separated with a heading line in a pipe."""
        if not sys.stdout.isatty():
            self._tab_separated([[column.heading.upper() for column in columns], *rows])
        elif rows:
            screen, now = console(sys.stdout), datetime.now(UTC)
            cells = [[format_cell(cell, now=now) for cell in row] for row in rows]
            screen.print(table_of(columns, cells, screen.width))

    def facts(self, details: Mapping[str, Cell]) -> None:
        """Write one object, a line with name and value for each field."""
        if not sys.stdout.isatty():
            self._tab_separated(list(details.items()))
            return
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 3, 0, 0))
        table.add_column(style="bold", no_wrap=True)
        table.add_column(overflow="fold")
        now = datetime.now(UTC)
        for name, value in details.items():
            when = f" ({format_cell(value, now=now)})" if isinstance(value, datetime) else ""
            table.add_row(name, Text(format_cell(value) + when))
        console(sys.stdout).print(table)

    def _tab_separated(self, rows: Sequence[Sequence[Cell]]) -> None:
        for row in rows:
            sys.stdout.write("\t".join(format_cell(cell) for cell in row) + "\n")


def write_error(error: SlipwayError, *, as_json: bool) -> None:
    """Write what happened, why, the next step and the request id to standard error.

    With `as_json` it is one problem document, the same as the API's.
    """
    if as_json:
        sys.stderr.write(json.dumps(problem_of(error).model_dump(mode="json")) + "\n")
        return
    lines = Text()
    lines.append("Error: ", style="bold red").append(f"{error.title}.", style="bold")
    lines.append(f"\n  {visible(error.message, multiline=True)}")
    for fault in error.errors:
        lines.append(f"\n  · {visible(fault.field)}: {visible(fault.message)}")
    if error.next_step:
        lines.append("\n  Next step: ", style="bold")
        lines.append(visible(error.next_step, multiline=True))
    if error.request_id:
        lines.append(f"\n  Request id: {visible(error.request_id)}", style="dim")
    console(sys.stderr).print(lines, soft_wrap=True)


def problem_of(error: SlipwayError) -> Problem:
    """Return `error` as a problem document (RFC 9457) for --json."""
    return Problem(
        type="about:blank",
        title=error.title,
        status=error.status or _status_of(error),
        detail=error.message,
        code=error.code,
        field=error.field,
        next_step=error.next_step,
        request_id=error.request_id,
        errors=list(error.errors),
    )


def _status_of(error: SlipwayError) -> int:
    """Return the status that the API gives for an error that was found on this machine."""
    usual = 422 if isinstance(error, InvalidInput) else 500
    return _STATUSES.get(error.code, usual)


def _json_default(value: object) -> object:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    return str(value)
