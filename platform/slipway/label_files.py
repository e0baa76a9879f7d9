"""Files of labels, read by the reader of tables, so that a value means the same as in a dataset."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slipway.errors import InvalidInput
from slipway.schemas.datasets import TableProblem
from slipway.schemas.tables import ReadSettings, format_of
from slipway.tables import TableReader

# Labels are sent verbatim: the portal knows their type, and 007 may be a class.
_AS_WRITTEN = {"prediction_id": "string", "own_id": "string", "value": "string", "row": "int64"}
_SCALARS = (bool, int, float, str, list)


@dataclass(frozen=True)
class LabelRow:
    """A label as the API takes it, and its place in the file."""

    label: dict[str, Any]
    place: str


@dataclass(frozen=True)
class LabelFile:
    """The labels of a file, or why it is refused and what helps."""

    rows: list[LabelRow]
    refusal: str = ""
    next_step: str = ""


def parse_labels(file: Path, *, name: str) -> LabelFile:
    """Return the labels of a file that messages call `name`."""
    try:
        return LabelFile(read_labels(file, name=name))
    except InvalidInput as error:
        return LabelFile([], error.message, error.next_step or "")


def read_labels(file: Path, *, name: str = "") -> list[LabelRow]:
    """Return the labels of a CSV, JSON lines or Parquet file. An empty value is "".

    Raises InvalidInput where the file cannot be read, or not all of it.
    """
    problems: list[TableProblem] = []
    name = name or str(file)
    try:
        rows = _rows(file, name, problems)
    except OSError as error:
        raise InvalidInput(
            f"{name} cannot be read: {error.strerror}.",
            field="file",
            next_step="Name a CSV, JSON lines or Parquet file.",
        ) from None
    if problems:
        first = problems[0]
        line = f", line {first.line}" if first.line else ""
        column = f", column {first.column}" if first.column else ""
        raise InvalidInput(
            f"{name}{line}{column}: {first.message}",
            code="bad_label_file",
            field="file",
            next_step="Correct the file. No label was sent.",
        )
    return rows


def _rows(file: Path, name: str, problems: list[TableProblem]) -> list[LabelRow]:
    format_ = format_of(name) or "csv"
    types = _AS_WRITTEN if format_ == "csv" else {}
    reader = TableReader(ReadSettings(types=types), on_problem=problems.append)
    rows: list[LabelRow] = []
    with file.open("rb") as source:
        for batch in reader.read(source, path=name, format=format_):
            _require_columns(name, batch.schema.names)
            for at, row in enumerate(batch.to_pylist()):
                line = reader.line_of(at)
                place = f"line {line}" if line is not None else f"row {len(rows) + 1}"
                rows.append(LabelRow(_label(row), place))
    if not rows and not problems:
        _require_columns(name, [])
    return rows


def _require_columns(file: str, names: list[str]) -> None:
    if "value" not in names or not {"prediction_id", "own_id"} & set(names):
        raise InvalidInput(
            f"{file} has no column value, or neither prediction_id nor own_id.",
            field="file",
            next_step="Begin it with a line such as prediction_id,value.",
        )


def _label(row: dict[str, Any]) -> dict[str, Any]:
    value = row["value"]
    if value is None or (isinstance(value, float) and math.isnan(value)):
        value = ""
    label: dict[str, Any] = {"value": value if isinstance(value, _SCALARS) else str(value)}
    for name in ("prediction_id", "own_id"):
        if row.get(name) not in (None, ""):
            label[name] = str(row[name])
    if row.get("row") is not None:
        label["row"] = row["row"]
    return label
