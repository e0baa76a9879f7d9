"""Texts as values: which type a column of texts has, and which of them do not fit it.

A type is inferred only where it gives back what was written: a number with leading zeros, or with
more digits than a double holds, stays text.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from slipway.schemas.truncation import shorten

EXACT_IN_DOUBLE = 2**53
_SURE_DIGITS = 15
_TIME = pa.timestamp("us")
ZONED_TIME = pa.timestamp("us", "UTC")
_CLOCK = r"[T ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?"
_WHOLE = r"^(0|-?[1-9][0-9]*)$"
_NUMBER = r"^(-?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?|-?[Ii]nf(inity)?)$"
_BOOLEAN = r"^(true|false|True|False|TRUE|FALSE)$"
_NAIVE_TIME = rf"^\d{{4}}-\d{{2}}-\d{{2}}({_CLOCK})?$"
_TIME_WITH_ZONE = rf"^\d{{4}}-\d{{2}}-\d{{2}}{_CLOCK}(Z|[+-]\d{{2}}(:?\d{{2}})?)$"
_PADDED = re.compile(r"^[+-]?0[0-9]+([.][0-9]+)?$")


@dataclass(frozen=True)
class _Form:
    """A type and the texts that it gives back as they were written."""

    type: Any
    pattern: str
    words: str


_FORMS = (
    _Form(pa.int64(), _WHOLE, "a whole number of 64 bits"),
    _Form(pa.uint64(), _WHOLE, "a whole number from 0 to 2^64 - 1"),
    _Form(pa.float64(), _NUMBER, "a number that a double holds exactly"),
    _Form(pa.bool_(), _BOOLEAN, "true or false"),
    _Form(_TIME, _NAIVE_TIME, "a time without a zone, such as 2024-01-05 10:00:00"),
    _Form(ZONED_TIME, _TIME_WITH_ZONE, "a time with its zone, such as 2024-01-05T10:00:00Z"),
)
_BY_TYPE = {form.type: form for form in _FORMS}
_DECLARED: dict[str, Any] = {
    "string": pa.string(),
    "json": pa.string(),
    "bool": pa.bool_(),
    "double": pa.float64(),
    "float": pa.float32(),
    "date": pa.date32(),
    "timestamp": _TIME,
    "timestamp_utc": ZONED_TIME,
    **{f"{sign}int{bits}": None for sign in ("", "u") for bits in (8, 16, 32, 64)},
}


def declared_type(name: str) -> Any:
    """Return the Arrow type of a declaration such as `int64` or `decimal(18, 2)`."""
    if name.startswith("decimal("):
        precision, scale = (int(part) for part in name[8:-1].split(","))
        if precision > 38 or scale > precision:
            raise ValueError(f"{name} is no decimal: at most 38 digits, and no more after the dot")
        return pa.decimal128(precision, scale)
    return _DECLARED[name] or getattr(pa, name)()


def describe(kind: Any) -> str:
    """Return what a value of a type has to be, for a message."""
    return _BY_TYPE[kind].words if kind in _BY_TYPE else f"a value of the type {kind}"


def is_exact(text: str) -> bool:
    """Return whether the nearest double, printed with as many digits, is the same number."""
    try:
        written, number = Decimal(text), float(text)
    except (InvalidOperation, ValueError):
        return False
    if not written.is_finite():
        return True
    if math.isinf(number):
        return False
    digits = len(written.as_tuple().digits)
    # These differ if the double is halfway between two such decimals, and programs print either.
    return written in (Decimal(f"{number:.{max(digits, 1) - 1}e}"), Decimal(repr(number)))


def infer_type(values: Any) -> tuple[Any, str]:
    """Return the type of trimmed texts without missing words, and a note where it is not obvious.

    There is at least one value.
    """
    texts = pc.drop_null(values)
    first = texts[0].as_py()
    for form in _FORMS:
        if re.match(form.pattern, first) is None and form.type != pa.float64():
            continue
        if form.type == pa.float64() and re.match(_NUMBER, first) is None:
            continue
        if not pc.all(pc.match_substring_regex(texts, form.pattern)).as_py():
            continue
        if not misfits(texts, form.type):
            return form.type, ""
    return pa.string(), _note_of_text(texts)


def _note_of_text(texts: Any) -> str:
    sample = texts.slice(0, 1000).to_pylist()
    if all(re.match(_NUMBER, text) or _PADDED.match(text) for text in sample):
        padded = next((text for text in sample if _PADDED.match(text)), None)
        if padded is not None:
            return f"Text, because {shorten(padded, 120)!r} would lose its zeros as a number."
        long = next((text for text in sample if not is_exact(text)), sample[0])
        return (
            f"Text, because {shorten(long, 120)!r} has more digits than a number of 64 bits holds."
        )
    return ""


def misfits(values: Any, kind: Any) -> list[int]:
    """Return the places of the texts that an undeclared column of this type cannot hold exactly."""
    form = _BY_TYPE[kind]
    fits = pc.fill_null(pc.match_substring_regex(values, form.pattern), True)
    bad = _true_indices(pc.invert(fits))
    kept = pc.if_else(fits, values, pa.scalar(None, pa.string())) if bad else values
    array = cast_or_none(kept, kind)
    if array is None:
        bad = sorted({*bad, *_failing(kept, lambda some: cast_or_none(some, kind) is not None)})
    elif kind == pa.float64():
        bad = sorted({*bad, *_inexact(kept, array)})
    return bad


def _true_indices(mask: Any) -> list[int]:
    return pc.indices_nonzero(mask).to_pylist() if pc.any(mask).as_py() else []


def _inexact(texts: Any, numbers: Any) -> list[int]:
    """Return the places of texts that their doubles do not give back."""
    doubtful = pc.or_(
        pc.greater(pc.utf8_length(texts), _SURE_DIGITS), pc.match_substring_regex(texts, "[eE]")
    )
    if not pc.any(doubtful).as_py():
        return []
    # Most programs print the shortest digits of a double, as Arrow does: no further check needed.
    shortest = pc.equal(pc.cast(numbers, pa.string()), texts)
    doubtful = pc.fill_null(pc.and_not(doubtful, shortest), False)
    return [at for at in _true_indices(doubtful) if not is_exact(texts[at].as_py())]


def cast_or_none(values: Any, kind: Any) -> Any | None:
    """Return the values as another type, None when one of them is not of it."""
    try:
        return pc.cast(values, kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def _failing(values: Any, fits: Callable[[Any], bool]) -> list[int]:
    """Return the places of values that do not fit, by halving."""
    failing: list[int] = []
    spans = [(0, len(values))]
    while spans:
        start, end = spans.pop()
        if fits(values.slice(start, end - start)):
            continue
        if end - start == 1:
            failing.append(start)
            continue
        middle = (start + end) // 2
        spans += [(middle, end), (start, middle)]
    return sorted(failing)


def with_nulls_at(values: Any, places: Sequence[int]) -> Any:
    """Return the values with null at some places."""
    if not places:
        return values
    mask = [False] * len(values)
    for at in places:
        mask[at] = True
    return pc.if_else(pa.array(mask), pa.scalar(None, values.type), values)


def convert_exactly(values: Any, kind: Any) -> tuple[Any, list[int]]:
    """Return trimmed texts as values of an inferred type, and the places of those that misfit."""
    bad = misfits(values, kind)
    return pc.cast(with_nulls_at(values, bad), kind), bad


def convert_declared(values: Any, kind: Any) -> tuple[Any, list[int]]:
    """Return trimmed texts as values of a declared type, and the places of those that misfit.

    A declaration says what is meant: 007 is the whole number 7, and 0.1 the nearest double.
    """
    if pa.types.is_integer(kind):
        values = pc.replace_substring_regex(values, r"^\+?(-?)0*([0-9])", r"\1\2")
    elif pa.types.is_boolean(kind):
        no_word = pc.invert(pc.match_substring_regex(values, r"^(?i:true|false|0|1)$"))
        wrong = _true_indices(pc.fill_null(no_word, False))
        return pc.cast(with_nulls_at(values, wrong), kind), wrong
    elif kind in (_TIME, ZONED_TIME):
        bad = misfits(values, kind)
        return pc.cast(with_nulls_at(values, bad), kind), bad
    array = cast_or_none(values, kind)
    if array is not None:
        return array, []
    bad = _failing(values, lambda some: cast_or_none(some, kind) is not None)
    return pc.cast(with_nulls_at(values, bad), kind), bad
