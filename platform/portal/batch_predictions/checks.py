"""Checks of the data of a batch prediction, before anything is queued."""

from collections.abc import Sequence
from typing import Any

from portal.core.errors import InvalidInput
from portal.datasets.models import DataTable, Version
from slipway.schemas.batch_predictions import ERROR, PREDICTION
from slipway.schemas.tables import TableColumn, TableSchema
from slipway.schemas.truncation import join_names, shorten_name

_SHOWN = 5
_WHOLE = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_NUMBERS = (*_WHOLE, "halffloat", "float", "double", "decimal")
_TIMES = ("timestamp", "date")
_TEXTS = ("string", "large_string")
# Types of columns that a type of a signature accepts, by their beginning. Values are checked when
# they are predicted: 3.0 is a whole number, and 3.5 is none.
_ACCEPTED = {
    "boolean": ("bool",),
    "integer": _NUMBERS,
    "long": _NUMBERS,
    "float": _NUMBERS,
    "double": _NUMBERS,
    "string": (*_TEXTS, *_TIMES, "time"),
    "binary": (*_TEXTS, "binary", "large_binary", "fixed_size_binary"),
    "datetime": (*_TEXTS, *_TIMES),
}


def chosen_table(version: Version, name: str | None) -> DataTable:
    """Return the table to predict. Raises InvalidInput unless it is clear and has rows."""
    tables = list(DataTable.objects.filter(version=version).order_by("name"))
    named = [table for table in tables if name in (None, table.name)]
    names = join_names([shorten_name(table.name, 200) for table in tables], _SHOWN)
    if len(named) != 1:
        raise InvalidInput(
            f"{version.reference} has no table {shorten_name(name, 200)}."
            if name
            else f"{version.reference} has {len(tables)} tables."
            if tables
            else f"{version.reference} has no table.",
            code="which_table",
            field="table" if tables else "data",
            next_step=f"Name one of its tables: {names}."
            if tables
            else "Push a CSV, JSON Lines, Parquet, ORC or Excel file.",
        )
    (table,) = named
    if not schema_of(table).columns:
        raise InvalidInput(
            f"The table {shorten_name(table.name, 200)} of {version.reference} could not be read. "
            f"{table.note}".strip(),
            code="table_not_read",
            field="data",
            next_step="Correct its files and push a new version.",
        )
    if not table.statistics.get("rows"):
        raise InvalidInput(
            f"The table {shorten_name(table.name, 200)} of {version.reference} has no rows.",
            code="empty_table",
            field="data",
            next_step="Choose a version that has rows to predict.",
        )
    return table


def schema_of(table: DataTable) -> TableSchema:
    """Return the schema that jobs read a table with, empty if it was not examined."""
    return TableSchema.model_validate(table.schema or {})


def columns_kept(table: DataTable, keep: Sequence[str] | None) -> list[str]:
    """Return the columns of the output that come from the table. Raises InvalidInput."""
    present = [column.name for column in schema_of(table).columns]
    chosen = present if keep is None else list(dict.fromkeys(keep))
    _require_columns(chosen, present, "keep")
    taken = [name for name in chosen if name in (PREDICTION, ERROR)]
    if taken:
        raise InvalidInput(
            f"The data have a column {taken[0]}, which the predictions need.",
            code="column_taken",
            field="keep",
            next_step="Name the columns to keep, without it.",
        )
    return chosen


def columns_sent(
    table: DataTable, requested: Sequence[str] | None, signature: dict[str, Any] | None, model: str
) -> list[str]:
    """Return the columns that the model gets. Raises InvalidInput if they do not fit its signature.

    `model` is what people call it. Without a signature all columns are sent.
    """
    columns = schema_of(table).columns
    present = {column.name: column for column in columns}
    if requested is not None:
        _require_columns(requested, list(present), "columns")
        if not requested:
            raise InvalidInput(
                "A model needs at least one column.", field="columns", next_step="Name one."
            )
    inputs = (signature or {}).get("inputs") or []
    sent = list(dict.fromkeys(requested)) if requested is not None else list(present)
    if not inputs:
        return sent
    names = [item["name"] for item in inputs]
    tensor = inputs[0]["shape"] if len(inputs) == 1 else None
    if tensor is not None and names[0] not in present:
        _require_width(tensor, sent, model, is_chosen=requested is not None)
        return sent
    if not all(names):
        _require_width([-1, len(names)], sent, model, is_chosen=requested is not None)
        return sent
    offered = {name: column for name, column in present.items() if name in sent}
    _require_inputs(inputs, offered, model)
    return [name for name in names if name in offered]


def _require_columns(names: Sequence[str], present: Sequence[str], field: str) -> None:
    unknown = [shorten_name(name, 200) for name in names if name not in set(present)]
    if unknown:
        there = join_names([shorten_name(name, 200) for name in present], 20)
        raise InvalidInput(
            f"The data have no column {join_names(unknown, _SHOWN)}.",
            code="no_such_column",
            field=field,
            next_step=f"Columns: {there}.",
        )


def _require_width(
    shape: Sequence[int], sent: Sequence[str], model: str, *, is_chosen: bool
) -> None:
    """Raise InvalidInput unless so many columns are sent as a row of a tensor has values."""
    if len(shape) != 2 or shape[1] < 0 or shape[1] == len(sent):
        return
    step = "Name others." if is_chosen else "Name those that the model takes, in their order."
    raise InvalidInput(
        f"{model} takes {shape[1]:,} columns, and {len(sent):,} were chosen.",
        code="signature_mismatch",
        field="columns",
        next_step=f"{step} On the command line: --column NAME, once for each.",
    )


def _require_inputs(
    inputs: Sequence[dict[str, Any]], present: dict[str, TableColumn], model: str
) -> None:
    """Raise InvalidInput that lists missing columns and columns of other types."""
    missing = [item["name"] for item in inputs if item["required"] and item["name"] not in present]
    others = [
        f"{shorten_name(item['name'], 200)} is {present[item['name']].type}, {item['type']} is "
        "expected"
        for item in inputs
        if item["name"] in present and not _accepts(item, present[item["name"]].type)
    ]
    if not missing and not others:
        return
    faults = []
    if missing:
        names = join_names([shorten_name(name, 200) for name in missing], _SHOWN)
        noun = "the column" if len(missing) == 1 else "the columns"
        faults.append(f"they lack {noun} {names}")
    if others:
        faults.append(join_names(others, _SHOWN))
    raise InvalidInput(
        f"The data do not fit {model}: {'; '.join(faults)}.",
        code="signature_mismatch",
        field="data",
        next_step="Push a version with these columns, or declare their types when you push it "
        "(--type COLUMN=TYPE).",
    )


def _accepts(item: dict[str, Any], type_: str) -> bool:
    """Return whether a column of an Arrow type may hold values of an input. Unknown ones may."""
    if item.get("shape") is not None:
        return True
    accepted = _ACCEPTED.get(item["type"])
    if accepted is None or type_ == "null":
        return True
    if item["type"] == "datetime" and "tz=" in type_:
        return False
    return type_.startswith(accepted)
