"""Whether a shadow gave the same outputs: equal, or numbers that are close."""

import math
from typing import Any, Final

import orjson

_RELATIVE: Final = 1e-4
_ABSOLUTE: Final = 1e-6
# Larger outputs are compared by their bytes alone: the gateway has other things to do.
_LARGEST_BYTES: Final = 64 * 1024


def agree(first: bytes, second: bytes) -> bool:
    """Compare two outputs of the same request."""
    if first == second:
        return True
    if len(first) > _LARGEST_BYTES or len(second) > _LARGEST_BYTES:
        return False
    try:
        one, other = orjson.loads(first), orjson.loads(second)
    except orjson.JSONDecodeError:
        return False
    if isinstance(one, dict) and isinstance(other, dict):
        # Whose version answered is no difference in what it said.
        one.pop("model_version", None)
        other.pop("model_version", None)
    return _close(one, other)


def _close(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_close, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_close(one[name], other[name]) for name in one)
    if isinstance(one, int | float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=_RELATIVE, abs_tol=_ABSOLUTE)
    return bool(one == other)
