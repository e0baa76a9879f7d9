"""Printing of paginated lists, with a hint if more items exist."""

from collections.abc import Callable, Sequence
from typing import Annotated, TypeVar

import typer

from slipway.cli.output import Cell
from slipway.cli.session import Session
from slipway.cli.tables import ListColumn
from slipway.pages import Pages
from slipway.schemas.base import AnswerSchema, PageOf

Item = TypeVar("Item", bound=AnswerSchema)
LARGEST_PAGE = 200
DEFAULT_LIMIT = 50

Limit = Annotated[int, typer.Option("--limit", min=1, max=100_000, help="Maximum number of items.")]
Cursor = Annotated[str | None, typer.Option("--cursor", help="Continue after an earlier list.")]


def collect(pages: Pages[Item], *, limit: int, cursor: str | None) -> PageOf[Item]:
    """Return up to `limit` items after `cursor`, and the next cursor."""
    items: list[Item] = []
    while True:
        page = pages.page(cursor=cursor, limit=min(LARGEST_PAGE, limit - len(items)))
        items += page.items
        cursor = page.next_cursor
        if cursor is None or not page.items or len(items) >= limit:
            return PageOf(items=items, next_cursor=cursor)


def show_list(
    session: Session,
    value: PageOf[Item],
    *,
    columns: Sequence[ListColumn],
    row: Callable[[Item], Sequence[Cell]],
    key: Callable[[Item], str],
    nothing: str,
) -> None:
    """Print a list as JSON, ids only, or a table, depending on the options.

    `nothing` is the message for an empty list.
    """
    output = session.output
    if output.as_json:
        output.document(value)
    elif output.quiet:
        for item in value.items:
            output.line(key(item))
    else:
        output.table(columns, [row(item) for item in value.items])
    if not value.items:
        output.note(nothing)
    if value.next_cursor is not None:
        output.note(f"There are more: raise --limit, or continue with --cursor {value.next_cursor}")
