"""Parses the bodies of predictions into rows with named cells.

A body is a request in any format of the gateway, or a response. Baselines are computed from the
same bodies, so that both have the same names. A tensor of up to 512 elements per row becomes
`x[0]`, `x[1]`, …. A larger one, such as a photograph, is reduced to its mean, standard deviation,
minimum, maximum and number of missing elements.
"""

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import orjson

from portal.monitoring.statistics.tasks import LONGEST_NAME
from slipway.schemas.truncation import shorten_name

WIDEST: Final = 512
MOST_ROWS: Final = 100_000
MOST_COLUMNS: Final = 2_000
_LONGEST_TEXT: Final = 1_000
Row = dict[str, Any]
IN: Final = "in."
OUT: Final = "out."


MOST_OWN_ID = 200


class Unreadable(Exception):
    """A body without rows that can be parsed."""


@dataclass(frozen=True)
class SignatureColumns:
    """The columns of a model by its signature, empty for tensors and unknown models.

    `texts` are columns of text, times or bytes. Those in `required` have no missing values.
    """

    columns: tuple[str, ...] = ()
    texts: frozenset[str] = frozenset()
    required: frozenset[str] = frozenset()

    @classmethod
    def of(cls, signature: Mapping[str, Any] | None) -> "SignatureColumns":
        """Read a `schemas.serving.Signature`."""
        if not signature or signature.get("kind") != "columns":
            return cls()
        inputs = {str(item["name"]): item for item in signature.get("inputs", [])}
        return cls(
            tuple(inputs),
            frozenset(name for name, item in inputs.items() if item.get("datatype") == "BYTES"),
            frozenset(name for name, item in inputs.items() if item.get("required", True)),
        )


def request_rows(
    text: str, named: SignatureColumns, cell: Callable[[str, str], Any] | None = None
) -> tuple[list[Row], str]:
    """Return the rows of a request, and the client's own id of it ("" without one).

    `cell` parses the text of a CSV cell, given the name of its column. By default numbers are
    parsed. It is not called for empty cells, and for columns of text.
    """
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError:
        return csv_rows(text, named, cell or _cell), ""
    if not isinstance(document, dict):
        raise Unreadable
    own = document.get("client_request_id") or document.get("id")
    own_id = str(own) if isinstance(own, str | int) else ""
    # A part of a longer id may be the id of another prediction.
    return rows_of_body(document, named), own_id if len(own_id) <= MOST_OWN_ID else ""


def rows_of_body(
    values: Mapping[str, Any], named: SignatureColumns, *, nested: bool = False
) -> list[Row]:
    """Return the rows of a request in JSON. With `nested`, values stay as they are."""
    split = values.get("dataframe_split")
    if isinstance(split, dict) and isinstance(split.get("data"), list):
        columns = split.get("columns") or named.columns
        return _from_rows(split["data"], [str(name) for name in columns], nested=nested)
    for key in ("dataframe_records", "instances", "inputs"):
        if key in values:
            return rows_of(values[key], named.columns, nested=nested)
    raise Unreadable


def rows_of(
    value: Any, columns: Sequence[str] = (), *, single: str = "x", nested: bool = False
) -> list[Row]:
    """Return the rows of records, lists, a mapping of columns, or tensors of the v2 protocol.

    Lists in cells become a cell for each element, unless `nested` is set.
    """
    if isinstance(value, dict):
        return _from_columns(value, nested)
    if not isinstance(value, list) or not value:
        raise Unreadable
    if all(isinstance(item, dict) for item in value):
        if all("datatype" in item and "data" in item for item in value):
            return _from_tensors(value, columns, nested)
        return [{str(name): cell for name, cell in item.items()} for item in value]
    return _from_rows(value, columns, single, nested=nested)


def _from_rows(
    data: Sequence[Any], columns: Sequence[str], single: str = "x", *, nested: bool = False
) -> list[Row]:
    rows = []
    for item in data[: MOST_ROWS + 1]:
        if not isinstance(item, list):
            rows.append({columns[0] if len(columns) == 1 else single: item})
        elif columns and len(columns) == len(item):
            rows.append(dict(zip(columns, item, strict=True)))
        else:
            rows.append({single: item} if nested else _flat(single, item))
    return rows


def _flat(name: str, value: Any) -> Row:
    cells = list(_elements(value))
    if len(cells) == 1 and not isinstance(value, list):
        return {name: cells[0]}
    if len(cells) <= WIDEST:
        return {f"{name}[{at}]": cell for at, cell in enumerate(cells)}
    numbers = [
        float(number)
        for number in cells
        if isinstance(number, int | float) and math.isfinite(number)
    ]
    if not numbers:
        return {f"{name}.missing": float(len(cells))}
    mean = math.fsum(numbers) / len(numbers)
    spread = math.sqrt(math.fsum((number - mean) ** 2 for number in numbers) / len(numbers))
    return {
        f"{name}.mean": mean,
        f"{name}.spread": spread,
        f"{name}.lowest": min(numbers),
        f"{name}.highest": max(numbers),
        f"{name}.missing": float(len(cells) - len(numbers)),
    }


def _elements(value: Any) -> Sequence[Any]:
    if not isinstance(value, list):
        return [value]
    if any(isinstance(item, list) for item in value):
        return [cell for item in value for cell in _elements(item)]
    return value


def _from_columns(value: Mapping[str, Any], nested: bool) -> list[Row]:
    lengths = {len(column) for column in value.values() if isinstance(column, list)}
    if not lengths:
        return [{str(name): cell for name, cell in value.items()}]
    if len(lengths) != 1:
        raise Unreadable
    rows: list[Row] = [{} for _ in range(min(lengths.pop(), MOST_ROWS))]
    for name, column in value.items():
        for row, cell in zip(rows, column if isinstance(column, list) else [], strict=False):
            row |= {str(name): cell} if nested else _flat(str(name), cell)
    return rows


def _from_tensors(
    tensors: Sequence[Mapping[str, Any]], columns: Sequence[str], nested: bool
) -> list[Row]:
    rows: list[Row] = []
    for tensor in tensors:
        shape = tensor.get("shape") or []
        cells = _elements(tensor["data"])
        if not shape or not isinstance(shape[0], int) or shape[0] < 1 or not cells:
            raise Unreadable
        width = max(1, len(cells) // shape[0])
        name = str(tensor.get("name", "x"))
        if len(tensors) == 1 and width > 1 and not nested:
            name = "x"
        while len(rows) < min(shape[0], MOST_ROWS):
            rows.append({})
        for at, row in enumerate(rows):
            some = list(cells[at * width : (at + 1) * width])
            if len(tensors) == 1 and len(columns) == width:
                row |= dict(zip(columns, some, strict=True))
            elif nested:
                row[name] = _shaped(some, shape[1:])
            else:
                row |= _flat(name, some if width > 1 else some[0] if some else None)
    return rows


def _shaped(cells: Sequence[Any], shape: Sequence[Any]) -> Any:
    """Return the cells of one row of a tensor, nested by the rest of its shape."""
    if not shape:
        return cells[0] if cells else None
    step = len(cells) // shape[0] if isinstance(shape[0], int) and shape[0] > 0 else 0
    if not step:
        return list(cells)
    return [_shaped(cells[at : at + step], shape[1:]) for at in range(0, len(cells), step)]


def csv_rows(text: str, named: SignatureColumns, cell: Callable[[str, str], Any]) -> list[Row]:
    """Return the rows of a request in CSV."""
    try:
        lines = list(islice(csv.reader(io.StringIO(text)), MOST_ROWS + 2))
    except csv.Error as error:
        raise Unreadable from error
    if len(lines) < 2 or not lines[0]:
        raise Unreadable
    head = lines[0]

    def value_of(name: str, part: str) -> Any:
        if not part:
            return "" if name in named.texts & named.required else None
        return part if name in named.texts else cell(name, part)

    return [
        {name: value_of(name, part) for name, part in zip(head, line, strict=False)}
        for line in lines[1:]
        if line
    ]


def _cell(_name: str, text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


def response_rows(text: str) -> list[Row]:
    """Return the outputs of a response, one row each. Class scores also yield the class."""
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise Unreadable from error
    if not isinstance(document, dict):
        raise Unreadable
    if "predictions" in document:
        return output_rows(document["predictions"])
    if "outputs" in document:
        return output_rows(document["outputs"])
    raise Unreadable


def output_rows(value: Any) -> list[Row]:
    """Return outputs as rows: `prediction`, or named ones, and `class` and `confidence`."""
    rows = rows_of(value, single="prediction")
    return [_with_class(row) for row in rows]


def _with_class(row: Row) -> Row:
    scores = list(row.values())
    if not 2 <= len(scores) <= WIDEST or not all(
        isinstance(score, int | float)
        and not isinstance(score, bool)
        and -1e-6 <= score <= 1 + 1e-6
        for score in scores
    ):
        return row
    if abs(math.fsum(scores) - 1) > 1e-3:
        return row
    best = max(range(len(scores)), key=scores.__getitem__)
    names = list(row)
    is_list = all(name.startswith("prediction[") for name in names)
    values = {"class": str(best) if is_list else names[best], "confidence": float(scores[best])}
    return row | values


def is_too_large(rows: Sequence[Row]) -> bool:
    """Return whether rows or cells of a body exceed the limits."""
    return len(rows) > MOST_ROWS or any(len(row) > MOST_COLUMNS for row in rows)


def limited(row: Row) -> Row:
    """Return a row of at most 2,000 cells, as plain values with names of at most 200 characters."""
    if len(row) > MOST_COLUMNS:
        row = dict(islice(row.items(), MOST_COLUMNS))
    return {shorten_name(name, LONGEST_NAME): _storable_value(value) for name, value in row.items()}


def _storable_value(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    return shorten_name(text, _LONGEST_TEXT)
