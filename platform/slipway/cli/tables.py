"""Tables that fit the terminal. Less important columns are dropped first, ids are never cut."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

GAP = 3


class CellOverflow(Enum):
    """Handling of cells that are wider than their column."""

    WHOLE = "whole"  # never: the column is as wide as its widest cell
    WRAPPED = "wrapped"  # continues on the next line
    CLIPPED = "clipped"  # its end is cut


# Minimum width of a useful column, in cells.
_LEAST = {CellOverflow.WRAPPED: 16, CellOverflow.CLIPPED: 32}


@dataclass(frozen=True)
class ListColumn:
    """A column with its heading, fit and priority on narrow terminals.

    Columns with a higher `dispensable` are dropped first. Columns with 0 always stay.
    """

    heading: str
    fit: CellOverflow = CellOverflow.WHOLE
    dispensable: int = 0
    style: str = ""


def widths_of(columns: Sequence[ListColumn], natural: Sequence[int], room: int) -> dict[int, int]:
    """Return the width of each column that is shown, by its index, in cells.

    `natural` is the preferred width of each and `room` the width of the terminal. Columns that
    always stay are shown even when they do not fit.
    """
    least = [
        min(wide, _LEAST.get(column.fit, wide))
        for column, wide in zip(columns, natural, strict=True)
    ]
    kept = list(range(len(columns)))
    while _total_width([least[index] for index in kept]) > room:
        worst = max(kept, key=lambda index: columns[index].dispensable)
        if not columns[worst].dispensable:
            break
        kept.remove(worst)
    widths = {index: least[index] for index in kept}
    for index in kept:
        spare = max(0, room - _total_width(list(widths.values())))
        widths[index] += min(spare, natural[index] - widths[index])
    return widths


def table_of(columns: Sequence[ListColumn], rows: Sequence[Sequence[str]], room: int) -> Table:
    """Return the table of `rows` (sanitized text) for a terminal `room` cells wide."""
    natural = [
        max(cell_len(column.heading), *(cell_len(row[index]) for row in rows), 0)
        for index, column in enumerate(columns)
    ]
    widths = widths_of(columns, natural, room)
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, GAP, 0, 0))
    for index, width in widths.items():
        column = columns[index]
        wrapped = column.fit is CellOverflow.WRAPPED
        table.add_column(
            column.heading.upper(),
            style=column.style,
            width=width,
            no_wrap=not wrapped,
            overflow="fold" if wrapped else "ellipsis",
        )
    for row in rows:
        table.add_row(*(Text(row[index]) for index in widths))
    return table


def _total_width(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * max(0, len(widths) - 1)
