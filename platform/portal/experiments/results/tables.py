"""Tables of `mlflow.log_table`: JSON of pandas in the orientation `split`.

Sorted, filtered and cut to a page here, so that a browser never gets more than a page.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

MOST_COLUMNS = 200
MOST_PAGE_ROWS = 200
MOST_CELL_CHARACTERS = 500
MOST_COMPARED = 6


class TableRefused(Exception):
    """The file is no table, or one that is too large. The message is a sentence for people."""


def parse_table(content: bytes) -> tuple[list[str], list[list[Any]]]:
    """Return the names of the columns and the rows. Raises TableRefused."""
    try:
        document = json.loads(content, parse_constant=str)
    except (ValueError, RecursionError):
        raise TableRefused("This file is not valid JSON.") from None
    if not isinstance(document, dict):
        raise TableRefused("This file is no table: expected an object with columns and data.")
    columns, rows = document.get("columns"), document.get("data")
    if not isinstance(columns, list) or not isinstance(rows, list):
        raise TableRefused("This file is no table: expected the lists columns and data.")
    names = [_short(name) for name in columns]
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, list) or len(row) != len(names):
            raise TableRefused(
                f"Row {number:,} of this table does not have a value for each of its "
                f"{len(names)} columns."
            )
    return names, rows


def page_of_table(
    content: bytes,
    *,
    sort: str = "",
    descending: bool = False,
    text: str = "",
    column: str = "",
    start: int = 0,
    length: int = 50,
) -> dict[str, Any]:
    """Return a page of a table: `columns`, `rows`, `matching` and `total` numbers of rows.

    `text` filters by what a cell contains, in `column` or in any. Each cell is [kind, text], where
    kind is number, text, null or image. Raises TableRefused.
    """
    names, rows = parse_table(content)
    total = len(rows)
    if text:
        at = names.index(column) if column in names else None
        needle = text.casefold()
        rows = [row for row in rows if _matches(row, at, needle)]
    if sort in names:
        at = names.index(sort)
        given = [row for row in rows if row[at] is not None]
        empty = [row for row in rows if row[at] is None]
        given.sort(key=lambda row: _order(row[at]), reverse=descending)
        rows = given + empty  # empty cells come last either way
    length = max(1, min(length, MOST_PAGE_ROWS))
    shown = rows[max(0, start) : max(0, start) + length]
    return {
        "columns": names[:MOST_COLUMNS],
        "more_columns": max(0, len(names) - MOST_COLUMNS),
        "rows": [[_cell(value) for value in row[:MOST_COLUMNS]] for row in shown],
        "matching": len(rows),
        "total": total,
    }


def difference_of_tables(
    contents: Sequence[bytes], *, key: str = "", start: int = 0, length: int = 50
) -> dict[str, Any]:
    """Return the rows in which the same table of several runs differs from that of the first.

    Rows are paired by the value of the column `key`, or by their position. Of each differing row:
    `key`, and `cells`, which have for each column the texts of all tables and whether they differ.
    A table without the row has None. Raises TableRefused, naming the number of a faulty table.
    """
    tables = []
    for number, content in enumerate(contents[:MOST_COMPARED], start=1):
        try:
            tables.append(parse_table(content))
        except TableRefused as error:
            raise TableRefused(f"Table {number}: {error}") from None
    names = list(dict.fromkeys(name for columns, _ in tables for name in columns))
    indexed = [_by_key(columns, rows, key) for columns, rows in tables]
    keys = list(dict.fromkeys(it for rows in indexed for it in rows))
    differing = [it for it in keys if any(rows.get(it) != indexed[0].get(it) for rows in indexed)]
    length = max(1, min(length, MOST_PAGE_ROWS))
    shown = differing[max(0, start) : max(0, start) + length]
    columns = [name for name in names if name != key][:MOST_COLUMNS]
    return {
        "columns": columns,
        "key_columns": [name for name in names if all(name in names_of for names_of, _ in tables)],
        "rows": [
            {
                "key": label[0] if label[1] == 1 else f"{label[0]} ({label[1]})",
                "cells": [_compared([rows.get(label) for rows in indexed], it) for it in columns],
            }
            for label in shown
        ],
        "differing": len(differing),
        "total": len(keys),
        "sizes": [len(rows) for _, rows in tables],
    }


def _by_key(
    columns: Sequence[str], rows: Sequence[list[Any]], key: str
) -> dict[tuple[str, int], Mapping[str, Any]]:
    """Return rows by the value of a column, and a count where several rows share the value."""
    counts: dict[str, int] = {}
    by_key: dict[tuple[str, int], Mapping[str, Any]] = {}
    at = columns.index(key) if key in columns else None
    for number, row in enumerate(rows, start=1):
        label = str(number) if at is None else _cell(row[at])[1]
        counts[label] = counts.get(label, 0) + 1
        by_key[label, counts[label]] = dict(zip(columns, row, strict=True))
    return by_key


def _compared(rows: Sequence[Mapping[str, Any] | None], column: str) -> dict[str, Any]:
    values = [None if row is None else row.get(column) for row in rows]
    texts = [None if row is None else _cell(row.get(column))[1] for row in rows]
    return {"texts": texts, "differs": any(value != values[0] for value in values)}


def _matches(row: Sequence[Any], at: int | None, needle: str) -> bool:
    cells = row if at is None else [row[at]]
    return any(needle in _text(value).casefold() for value in cells)


def _order(value: Any) -> tuple[int, float, str]:
    """Return a key that sorts numbers before texts."""
    if isinstance(value, bool | int | float):
        number = float(value) if abs(value) < 1e300 else math.inf
        return (0, number if number == number else -math.inf, "")
    return (1, 0.0, _text(value).casefold())


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False) if value is not None else ""


def _cell(value: Any) -> list[str]:
    if value is None:
        return ["null", ""]
    if isinstance(value, dict) and value.get("type") == "image":
        path = value.get("compressed_filepath") or value.get("filepath")
        if isinstance(path, str):
            return ["image", path[:MOST_CELL_CHARACTERS]]
    kind = "number" if isinstance(value, int | float) and not isinstance(value, bool) else "text"
    return [kind, _short(value)]


def _short(value: Any) -> str:
    text = _text(value)
    if len(text) <= MOST_CELL_CHARACTERS:
        return text
    return f"{text[:MOST_CELL_CHARACTERS]}… ({len(text):,} characters)"
