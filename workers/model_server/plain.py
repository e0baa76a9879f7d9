"""Values of answers as JSON has them: the same in every shape and language of a request.

Whole numbers and numbers with a point are numbers, whatever their type was. Times are ISO 8601 with
their zone, decimals exact text, bytes Base64. What is missing (None, NaN, NaT, NA) is null, and so
is what JSON has no number for.
"""

import base64
import datetime as dt
import json
import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

import numpy as np
import orjson

_OPTIONS: Final = (
    orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS | orjson.OPT_PASSTHROUGH_DATETIME
)
_NATIVE: Final = frozenset({str, int, float, bool, type(None)})
_ZEROS: Final = re.compile(r"(?<=\d)(\.\d*?)0+(?=\D|$)")
_NANOSECONDS: Final = 1_000_000_000


def dumps(value: Any) -> bytes:
    """Return a value as JSON."""
    value = plain(value)
    try:
        return orjson.dumps(value, plain, _OPTIONS)
    except orjson.JSONEncodeError:
        # An integer of more than 64 bits, a lone surrogate, or a key that is not a string.
        return json.dumps(_for_json(value), allow_nan=False, separators=(",", ":")).encode()


def plain(value: Any) -> Any:
    """Return a value without anything that `orjson` writes in another way, or not at all."""
    kind = type(value)
    if kind in _NATIVE:
        return value
    if isinstance(value, list | tuple):
        is_native = set(map(type, value)) <= _NATIVE
        return list(value) if is_native else [plain(item) for item in value]
    if isinstance(value, Mapping):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, np.ndarray):
        return _array(value)
    if isinstance(value, np.generic):
        return _numpy_scalar(value)
    return (
        _table(value)
        if hasattr(value, "to_dict") and hasattr(value, "columns")
        else _plain_scalar(value)
    )


def text_of(value: Any) -> str | None:
    """Return an element of a text tensor, or None for a missing one."""
    value = plain(value)
    if value is None or isinstance(value, str):
        return value
    return dumps(value).decode()


def has_infinity(value: Any) -> bool:
    """Return whether the values contain an infinite number."""
    if isinstance(value, float | np.floating):
        return math.isinf(value)
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        return bool(np.isinf(value).any())
    value = plain(value)
    if isinstance(value, np.ndarray):
        return value.dtype.kind == "f" and bool(np.isinf(value).any())
    if isinstance(value, dict):
        return any(map(has_infinity, value.values()))
    return isinstance(value, list) and any(map(has_infinity, value))


def _array(value: np.ndarray[Any, Any]) -> Any:
    if value.dtype.kind in "biu" or value.dtype in (np.float16, np.float32, np.float64):
        return value if value.flags.c_contiguous and value.dtype.isnative else value.tolist()
    return [plain(item) for item in value] if value.ndim else plain(value[()])


def _numpy_scalar(value: Any) -> Any:
    if isinstance(value, np.datetime64):
        return None if np.isnat(value) else _trim_zeros(str(np.datetime_as_string(value)))
    if isinstance(value, np.timedelta64):
        return (
            None if np.isnat(value) else _duration(int(value.astype("timedelta64[ns]").astype(int)))
        )
    if isinstance(value, bytes):
        return _base64(value)
    if isinstance(value, np.longdouble | np.complexfloating):
        return None if np.isnan(value) else str(value)
    return str(value) if isinstance(value, str) else value


def _table(value: Any) -> Any:
    names = [str(name) for name in value.columns]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ValueError(f"the model returned a table that has the column {twice[0]!r} twice")
    columns = [plain(value.iloc[:, at]) for at in range(len(names))]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _plain_scalar(value: Any) -> Any:
    if type(value).__name__ == "NAType":
        return None
    if isinstance(value, dt.datetime | dt.date | dt.time):
        # NaT, which is a datetime to Python, is the only one that does not equal itself.
        return None if value != value else _trim_zeros(value.isoformat())
    if isinstance(value, dt.timedelta):
        return None if value != value else _duration(_nanoseconds(value))
    if isinstance(value, Decimal):
        return str(value) if value.is_finite() else None
    if isinstance(value, bytes | bytearray | memoryview):
        return _base64(bytes(value))
    for kind in (str, bool, int, float):
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, set | frozenset):
        return [plain(item) for item in value]
    return plain(value.tolist()) if hasattr(value, "tolist") else str(value)


def _trim_zeros(text: str) -> str:
    """Return a time without zeros at the end of its seconds: libraries write up to nine."""
    short = _ZEROS.sub(r"\1", text)
    return re.sub(r"\.(?=\D|$)", "", short)


def _nanoseconds(value: Any) -> int:
    more = int(getattr(value, "nanoseconds", 0))  # of pandas
    seconds = value.days * 86_400 + value.seconds
    return int(seconds * 1_000_000 + value.microseconds) * 1_000 + more


def _duration(nanoseconds: int) -> str:
    whole, rest = divmod(abs(nanoseconds), _NANOSECONDS)
    return _trim_zeros(f"{'-' if nanoseconds < 0 else ''}PT{whole}.{rest:09d}S")


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _for_json(value: Any) -> Any:
    """Return plain values for the standard library, which knows neither numpy nor these keys."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, dict):
        return {_key(name): _for_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_for_json(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _key(name: Any) -> str:
    name = plain(name)
    return name if isinstance(name, str) else dumps(name).decode()
