"""Values of JSON as values of Arrow types: inferred one after the other, and never changed."""

import json
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from slipway.schemas.truncation import shorten
from slipway.tables.text_values import EXACT_IN_DOUBLE, is_exact

_MOST_NESTED = 50
_LONGEST_SHORT = 16
_INT_MIN, _INT_MAX, _UINT_MAX = -(2**63), 2**63 - 1, 2**64 - 1


@dataclass(frozen=True, slots=True)
class LongNumber:
    """A number as it was written, with more digits than a double holds."""

    text: str


class Misfit(Exception):
    """A value does not have the type of its column. The message says why."""


def parse_float(text: str) -> float | LongNumber:
    """Return a number as a double where that is exact."""
    if len(text) <= _LONGEST_SHORT and "e" not in text and "E" not in text:
        return float(text)
    return float(text) if is_exact(text) else LongNumber(text)


def parse_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object, or raise Misfit if it has a key twice."""
    result = dict(pairs)
    if len(result) != len(pairs):
        names = [name for name, _value in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise Misfit(f"The key {shorten(twice, 120)!r} is in it twice. Keep one of them.")
    return result


def invalid_key_reason(value: dict[str, Any]) -> str | None:
    """Return what is wrong with a key of an object that cannot name a column, or None."""
    for key in value:
        if "\0" in key:
            return "A key holds a NUL character."
        if not key.isascii() and any("\ud800" <= each <= "\udfff" for each in key):
            return "A key holds half a character (a lone surrogate)."
    return None


class Shape:
    """The types of the values of a column so far, nested ones included."""

    def __init__(self) -> None:
        self.name = "null"
        self.low, self.high = 0, 0
        self.item: Shape | None = None
        self.fields: dict[str, Shape] = {}

    def add(self, value: Any, depth: int = 0) -> None:
        """Widen the shape by one more value, without loss, or raise Misfit."""
        if value is None:
            return
        if depth > _MOST_NESTED:
            raise Misfit(f"It is nested too deeply: more than {_MOST_NESTED} levels.")
        name = _name_of(value)
        if self.name == "null":
            self.name = name
        elif self.name != name and {self.name, name} != {"int", "float"}:
            raise Misfit(
                f"{format_value(value)} is {_WORDS[name]}, and the values above are "
                f"{_PLURALS[self.name]}."
            )
        if name == "int":
            self._add_int(value)
        elif name == "float":
            self._add_float(value)
        elif name == "list":
            self.item = self.item or Shape()
            for item in value:
                self.item.add(item, depth + 1)
        elif name == "struct":
            self._add_fields(value, depth)

    def _add_fields(self, value: dict[str, Any], depth: int) -> None:
        if (fault := invalid_key_reason(value)) is not None:
            raise Misfit(fault)
        for key, item in value.items():
            try:
                self.fields.setdefault(key, Shape()).add(item, depth + 1)
            except Misfit as error:
                raise Misfit(f"In {shorten(key, 120)!r}: {error}") from None

    def _add_float(self, value: float) -> None:
        if self.name == "int" and max(-self.low, self.high) > EXACT_IN_DOUBLE:
            raise Misfit(
                f"{format_value(value)} is a fraction, and a whole number above is too large for a "
                "column of fractions."
            )
        self.name = "float"

    def _add_int(self, value: int) -> None:
        low, high = min(self.low, value), max(self.high, value)
        if self.name == "float" and abs(value) > EXACT_IN_DOUBLE:
            raise Misfit(f"{format_value(value)} has more digits than a column of fractions holds.")
        if low < _INT_MIN or high > (_UINT_MAX if low >= 0 else _INT_MAX):
            raise Misfit(f"{format_value(value)} does not fit into 64 bits with the values above.")
        self.low, self.high = low, high

    def type(self) -> Any:
        """Return the Arrow type, which is null without values."""
        if self.name == "int":
            return pa.uint64() if self.high > _INT_MAX else pa.int64()
        if self.name == "list":
            assert self.item is not None  # noqa: S101 - set with the name
            return pa.list_(self.item.type())
        if self.name == "struct":
            return pa.struct([(name, shape.type()) for name, shape in self.fields.items()])
        return _TYPES[self.name]

    @classmethod
    def of(cls, kind: Any) -> "Shape":
        """Return the shape of a column of a type, as if it had held such values."""
        shape = cls()
        if pa.types.is_list(kind):
            shape.name, shape.item = "list", cls.of(kind.value_type)
        elif pa.types.is_struct(kind):
            shape.name = "struct"
            shape.fields = {field.name: cls.of(field.type) for field in kind}
        elif kind == pa.uint64():
            shape.name, shape.high = "int", _UINT_MAX
        else:
            shape.name = next((name for name, each in _TYPES.items() if each == kind), "text")
        return shape


_TYPES: dict[str, Any] = {
    "null": pa.null(),
    "bool": pa.bool_(),
    "int": pa.int64(),
    "float": pa.float64(),
    "text": pa.string(),
}
_WORDS = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a fraction",
    "text": "text",
    "list": "a list",
    "struct": "an object",
}
_PLURALS = {
    "bool": "true or false",
    "int": "whole numbers",
    "float": "numbers",
    "text": "text",
    "list": "lists",
    "struct": "objects",
}


def _name_of(value: Any) -> str:
    if isinstance(value, LongNumber):
        raise Misfit(f"{format_value(value)} has more digits than a double holds.")
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int"
    if isinstance(value, float):
        return "float"
    if isinstance(value, str):
        if not value.isascii() and any("\ud800" <= each <= "\udfff" for each in value):
            raise Misfit("The text holds half a character (a lone surrogate).")
        return "text"
    return "list" if isinstance(value, list) else "struct"


def format_value(value: Any) -> str:
    """Return a value as JSON has it, shortened."""
    if isinstance(value, LongNumber):
        return shorten(value.text, 120)
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):
        text = "The value"
    return shorten(text, 120)


def require_fit(value: Any, kind: Any) -> None:
    """Raise Misfit for a value that a column of that type does not hold exactly."""
    if value is None:
        return
    name = _name_of(value)
    types = pa.types
    if name == "list" and types.is_list(kind):
        for item in value:
            require_fit(item, kind.value_type)
    elif name == "struct" and types.is_struct(kind):
        for key, item in value.items():
            at = kind.get_field_index(key)
            if at < 0:
                raise Misfit(f"The key {shorten(key, 120)!r} is not in the objects of this column.")
            require_fit(item, kind.field(at).type)
    elif name == "int" and types.is_integer(kind):
        low, high = (_INT_MIN, _INT_MAX) if kind == pa.int64() else (0, _UINT_MAX)
        if not low <= value <= high:
            raise Misfit(f"{format_value(value)} does not fit into {kind}.")
    elif name == "int" and kind == pa.float64():
        if abs(value) > EXACT_IN_DOUBLE:
            raise Misfit(f"{format_value(value)} has more digits than a double holds.")
    elif _TYPES.get(name) != kind:
        raise Misfit(
            f"{format_value(value)} is {_WORDS[name]}, and the column is of the type {kind}."
        )


def as_declared(value: Any, declaration: str, kind: Any) -> Any:
    """Return a value converted to a declared type, or raise Misfit."""
    if value is None:
        return None
    if declaration == "json":
        return _json_text(value)
    if declaration == "string":
        if isinstance(value, str):
            _name_of(value)
            return value
        return str(value) if _is_number(value) else _json_text(value)
    if pa.types.is_decimal(kind):
        return _as_decimal(value, kind)
    if pa.types.is_integer(kind):
        number = _to_integer(value)
        try:
            return pa.scalar(number, kind).as_py()
        except (pa.ArrowInvalid, OverflowError):
            raise Misfit(f"{format_value(value)} does not fit into {kind}.") from None
    if pa.types.is_floating(kind) and isinstance(value, LongNumber):
        return float(value.text)
    if pa.types.is_floating(kind) and _is_number(value):
        return float(value)
    if pa.types.is_boolean(kind) and isinstance(value, bool):
        return value
    if pa.types.is_temporal(kind) and isinstance(value, str):
        return value
    raise Misfit(
        f"{format_value(value)} is {_WORDS[_name_of(value)]}, not a value of the type {kind}."
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _json_text(value: Any) -> str:
    try:
        if isinstance(value, LongNumber):
            return value.text
        text = json.dumps(value, ensure_ascii=False, default=_refuse_nested)
        text.encode()
    except UnicodeEncodeError:
        raise Misfit("The text holds half a character (a lone surrogate).") from None
    except (RecursionError, ValueError):
        raise Misfit("It is nested too deeply.") from None
    return text


def _refuse_nested(value: LongNumber) -> Any:
    raise Misfit(f"{shorten(value.text, 120)} has more digits than a double holds.")


def _to_integer(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            pass
    raise Misfit(f"{format_value(value)} is no whole number.")


def _as_decimal(value: Any, kind: Any) -> Decimal:
    try:
        if isinstance(value, bool):
            raise InvalidOperation
        text = value.text if isinstance(value, LongNumber) else str(value)
        number = Decimal(text)
        scaled = number.quantize(Decimal(1).scaleb(-kind.scale))
        fits = scaled == number and len(scaled.as_tuple().digits) <= kind.precision
    except (InvalidOperation, TypeError, ValueError):
        raise Misfit(f"{format_value(value)} is no {kind}.") from None
    if not fits:
        raise Misfit(f"{format_value(value)} does not fit into {kind}.")
    return scaled
