"""Values of a table by the signature of an MLflow model: exactly what was sent, or refused.

Every shape of a request (JSON of four kinds, CSV, tensors) comes here as columns of plain values.
Nothing is bent: no number wraps or becomes infinite, text is no number, and a missing value stays
missing. MLflow's own check, which would bend some of them, is not asked afterwards.
"""

import base64
import binascii
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
from mlflow.types.schema import AnyType, Array, DataType, Map, Object, Schema

from slipway.schemas.problem import FieldError
from slipway.schemas.serving import Datatype
from workers.model_server.errors import BadInput, quote_value

Columns = Mapping[str, Sequence[Any]]
_NAMES: Final = {
    DataType.boolean: Datatype.BOOL.value,
    DataType.integer: Datatype.INT32.value,
    DataType.long: Datatype.INT64.value,
    DataType.float: Datatype.FP32.value,
    DataType.double: Datatype.FP64.value,
    DataType.string: "a string",
    DataType.binary: "bytes in Base64",
    DataType.datetime: "a datetime without a zone, such as 2024-03-31T01:30:00,",
}
_BITS: Final = {DataType.integer: 32, DataType.long: 64}
_EXACT: Final = 2**53
_MOST_SHOWN: Final = 5
_MOMENT: Final = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?)?(Z|[+-]\d\d:?(?:\d\d)?)?", re.ASCII
)
_WHOLE: Final = re.compile(r"\s*[+-]?\d+\s*", re.ASCII)
_NUMBER: Final = re.compile(r"[^_]+")
_TRUTHS: Final = {"true": True, "false": False, "1": True, "0": False}


class Mismatch(ValueError):
    """A value is not of its type: where in it, what it is, what was expected, and a reason."""

    def __init__(self, value: Any, expected: str, reason: str = "", at: str = "") -> None:
        super().__init__(expected)
        self.value, self.expected, self.reason, self.at = value, expected, reason, at

    def below(self, step: str) -> "Mismatch":
        """Return the same for a value that this one is a part of."""
        return Mismatch(self.value, self.expected, self.reason, f"{step}{self.at}")

    def message(self, row: int) -> str:
        """Return the sentence about it, without the name of the column."""
        at = f" at {self.at}" if self.at else ""
        reason = f": {self.reason}" if self.reason else ""
        quoted = quote_value(self.value)
        return f"holds {quoted}{at} in row {row}; {self.expected} was expected{reason}"


@dataclass(frozen=True)
class SignatureColumn:
    """A column of the signature."""

    name: str
    type: Any
    required: bool

    @property
    def may_be_missing(self) -> bool:
        """Return whether null is a value. NaN is a float, and MLflow takes None for any string."""
        loose = (DataType.float, DataType.double, DataType.string)
        return not self.required or self.type in loose or isinstance(self.type, AnyType)


class ColumnReader:
    """Makes tables of columns, each as the signature has it."""

    def __init__(self, schema: Schema) -> None:
        self.has_names = schema.has_input_names()
        self.columns = [
            SignatureColumn(
                str(spec.name) if self.has_names else str(at), spec.type, bool(spec.required)
            )
            for at, spec in enumerate(schema.inputs)
        ]

    def read(self, sent: Columns, index: Sequence[Any] | None = None) -> pd.DataFrame:
        """Return a table. Raises BadInput that names each invalid column."""
        faults: list[FieldError] = []
        values: dict[str, Any] = {}
        for column, name in self._pairs(sent):
            if name not in sent:
                if column.required:
                    there = ", ".join(map(repr, list(sent)[:20])) or "none"
                    message = (
                        f"is missing; {_expected(column.type)} was expected, there is: {there}"
                    )
                    faults.append(FieldError(field=column.name, message=message))
                continue
            try:
                values[name] = series_of(column, sent[name])
            except _BadRow as error:
                faults.append(FieldError(field=column.name, message=error.message))
        if faults:
            raise _refusal(faults)
        rows = max(map(len, sent.values()), default=0)
        table = pd.DataFrame(values, index=pd.RangeIndex(rows))
        if index is not None and index != list(range(rows)):
            if len(index) != rows:
                raise BadInput(f"The index has {len(index)} entries, but there are {rows} rows.")
            table.index = pd.Index(index)
        if not self.has_names:
            table.columns = pd.Index([_column_key(name) for name in table.columns])
        return table

    def _pairs(self, sent: Columns) -> list[tuple[SignatureColumn, str]]:
        """Return each column of the signature with the name it was sent under."""
        if self.has_names:
            return [(column, column.name) for column in self.columns]
        names = list(sent)
        names += [str(at) for at in range(len(names), len(self.columns))]
        return list(zip(self.columns, names, strict=False))

    def binary_names(self) -> frozenset[str]:
        """Return the names of columns that hold bytes."""
        return frozenset(
            signature_column.name
            for signature_column in self.columns
            if signature_column.type == DataType.binary
        )

    def parse(self, name: str, texts: Sequence[str]) -> list[Any]:
        """Parse the cells of a CSV column as its type. Cells that do not parse remain text.

        An empty cell is a missing value, except in a required string column.
        """
        column = next(
            (
                signature_column
                for signature_column in self.columns
                if signature_column.name == name
            ),
            None,
        )
        if column is None:
            return list(texts)
        if column.type == DataType.string:
            return [None if text == "" and not column.required else text for text in texts]
        parse = _PARSERS.get(column.type)
        return [None if text == "" else parse(text) if parse else text for text in texts]


class _BadRow(Exception):
    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


def _refusal(faults: Sequence[FieldError]) -> BadInput:
    sentences = [f"column {fault.field!r} {fault.message}" for fault in faults[:_MOST_SHOWN]]
    more = len(faults) - len(sentences)
    rest = f"; and {more} more columns" if more else ""
    return BadInput(f"The input does not fit the model: {'; '.join(sentences)}{rest}.", faults)


def _column_key(name: str) -> Any:
    return int(name) if name.isdecimal() else name


def series_of(column: SignatureColumn, values: Sequence[Any]) -> Any:
    """Return the values of a column in the pandas type.

    Raises _BadRow for the first invalid one.
    """
    cells = _exact_column(column.type, values)
    if cells is not None:
        return cells
    converted: list[Any] = []
    for row, value in enumerate(values):
        if value is None:
            if not column.may_be_missing:
                expected = _expected(column.type)
                raise _BadRow(f"holds null in row {row}; {expected} was expected")
            converted.append(None)
            continue
        try:
            converted.append(convert(value, column.type))
        except Mismatch as error:
            raise _BadRow(error.message(row)) from None
    return _series(column.type, converted)


def _exact_column(kind: Any, values: Sequence[Any]) -> Any | None:
    """Return a column whose values all have its exact Python type, else None."""
    types = set(map(type, values))
    if kind == DataType.double and types == {float}:
        return np.array(values, np.float64)
    if kind == DataType.string and types == {str}:
        return pd.Series(values, dtype=object)
    if kind == DataType.boolean and types == {bool}:
        return np.array(values, np.bool_)
    if not isinstance(kind, DataType):
        return None
    if kind in _BITS and types == {int}:
        bound = 2 ** (_BITS[kind] - 1)
        if -bound <= min(values) and max(values) < bound:
            return np.array(values, f"int{_BITS[kind]}")
    return None


def _series(kind: Any, cells: list[Any]) -> Any:
    has_missing = any(cell is None for cell in cells)
    if kind == DataType.boolean and not has_missing:
        return np.array(cells, np.bool_)
    if isinstance(kind, DataType) and kind in _BITS:
        # numpy has no missing integers, and as floats large integers would change.
        bits = _BITS[kind]
        return pd.array(cells, f"Int{bits}") if has_missing else np.array(cells, f"int{bits}")
    if kind in (DataType.float, DataType.double):
        size = np.float32 if kind == DataType.float else np.float64
        return np.array([math.nan if cell is None else cell for cell in cells], size)
    if kind == DataType.datetime:
        return pd.Series([pd.NaT if cell is None else cell for cell in cells]).astype(
            "datetime64[ns]"
        )
    series = pd.Series([None] * len(cells), dtype=object)
    for place, cell in enumerate(cells):
        series.iat[place] = cell
    return series


def convert(value: Any, kind: Any) -> Any:
    """Return a value converted to its type. Raises Mismatch."""
    if isinstance(kind, DataType):
        return _SCALARS[kind](value)
    if isinstance(kind, Array):
        if not isinstance(value, list):
            raise Mismatch(value, _expected(kind))
        return [_part(part, kind.dtype, f"[{at}]", required=True) for at, part in enumerate(value)]
    if isinstance(kind, Object):
        return _object(value, kind)
    if isinstance(kind, Map):
        if not isinstance(value, dict):
            raise Mismatch(value, _expected(kind))
        return {
            name: _part(part, kind.value_type, f".{name}", required=True)
            for name, part in value.items()
        }
    return value


def _part(value: Any, kind: Any, step: str, *, required: bool) -> Any:
    if value is None and (not required or isinstance(kind, AnyType)):
        return None
    try:
        return convert(value, kind)
    except Mismatch as error:
        raise error.below(step) from None


def _object(value: Any, kind: Object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Mismatch(value, _expected(kind))
    properties = {prop.name: prop for prop in kind.properties}
    for name in value:
        if name not in properties:
            known = ", ".join(properties)
            raise Mismatch(value[name], "nothing", f"the object has only {known}", f".{name}")
    for prop in properties.values():
        if prop.required and prop.name not in value:
            raise Mismatch(None, _expected(prop.dtype), "it is missing", f".{prop.name}")
    return {
        name: _part(part, properties[name].dtype, f".{name}", required=properties[name].required)
        for name, part in value.items()
    }


def _expected(kind: Any) -> str:
    if isinstance(kind, DataType):
        return _NAMES.get(kind, kind.name)
    if isinstance(kind, Array):
        return f"a list of {_expected(kind.dtype)}"
    if isinstance(kind, Object):
        return f"an object of {', '.join(prop.name for prop in kind.properties)}"
    if isinstance(kind, Map):
        return f"an object of {_expected(kind.value_type)}"
    return "any value"


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise Mismatch(value, _NAMES[DataType.boolean])


def _integer_converter(kind: DataType) -> Callable[[Any], int]:
    bound = 2 ** (_BITS[kind] - 1)
    expected = _NAMES[kind]

    def convert_whole(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise Mismatch(value, expected)
        if isinstance(value, float):
            if not value.is_integer():
                raise Mismatch(value, expected)
            if abs(value) > _EXACT and abs(value) < bound:
                reason = (
                    "a number with a decimal point is exact only up to 2^53, send it without one"
                )
                raise Mismatch(value, expected, reason)
        if not -bound <= value < bound:
            raise Mismatch(value, expected, f"from {-bound} to {bound - 1}")
        return int(value)

    return convert_whole


def _double(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Mismatch(value, _NAMES[DataType.double])
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if isinstance(value, int) and number != value:
        reason = f"it would become {number:.17g}, send a number that it can represent exactly"
        raise Mismatch(value, _NAMES[DataType.double], reason)
    return number


def _float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Mismatch(value, _NAMES[DataType.float])
    largest = float(np.finfo(np.float32).max)
    if math.isfinite(value) and abs(value) > largest:
        raise Mismatch(value, _NAMES[DataType.float], f"from {-largest:.8g} to {largest:.8g}")
    held = np.float32(value)
    if isinstance(value, int) and int(held) != value:
        reason = f"it would become {int(held)}, send a number that it can represent exactly"
        raise Mismatch(value, _NAMES[DataType.float], reason)
    return float(held)


def _string(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise Mismatch(value, _NAMES[DataType.string])


def _binary(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    try:
        if isinstance(value, str):
            return base64.b64decode("".join(value.split()), validate=True)
    except (binascii.Error, ValueError):
        pass
    raise Mismatch(value, _NAMES[DataType.binary])


def _datetime(value: Any) -> pd.Timestamp:
    expected = _NAMES[DataType.datetime]
    match = _MOMENT.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise Mismatch(value, expected)
    if match[1]:
        reason = (
            f"the signature has no zone, so {match[1]} would be lost; send the time in the zone "
            "used in training"
        )
        raise Mismatch(value, expected, reason)
    try:
        return pd.Timestamp(value).as_unit("ns")
    except ValueError as error:
        raise Mismatch(value, expected, str(error)) from None


_SCALARS: Final[dict[DataType, Callable[[Any], Any]]] = {
    DataType.boolean: _boolean,
    DataType.integer: _integer_converter(DataType.integer),
    DataType.long: _integer_converter(DataType.long),
    DataType.float: _float,
    DataType.double: _double,
    DataType.string: _string,
    DataType.binary: _binary,
    DataType.datetime: _datetime,
}


def _number(text: str) -> Any:
    if _WHOLE.fullmatch(text):
        return int(text) if len(text) < 400 else text
    try:
        return float(text) if _NUMBER.fullmatch(text) else text
    except ValueError:
        return text


_PARSERS: Final[dict[Any, Callable[[str], Any]]] = {
    DataType.boolean: lambda text: _TRUTHS.get(text.strip().lower(), text),
    DataType.integer: _number,
    DataType.long: _number,
    DataType.float: _number,
    DataType.double: _number,
}
