"""Comparison of a shadow's outputs with the primary's: equal, or numbers that are close."""

import math
from typing import Any, Final

import orjson

_RELATIVE: Final = 1e-4
_ABSOLUTE: Final = 1e-6
# Larger outputs are only compared as bytes, which limits the CPU time of the gateway.
_LARGEST_BYTES: Final = 64 * 1024


def agree(first: bytes, second: bytes) -> bool:
    """Compare two outputs of the same request."""
    if first == second:
        return True
    if len(first) > _LARGEST_BYTES or len(second) > _LARGEST_BYTES:
        return False
    try:
        item, other = orjson.loads(first), orjson.loads(second)
    except orjson.JSONDecodeError:
        return False
    if isinstance(item, dict) and isinstance(other, dict):
        # The model version is not part of the outputs.
        item.pop("model_version", None)
        other.pop("model_version", None)
    return _close(item, other)


def _close(item: Any, other: Any) -> bool:
    if isinstance(item, list) and isinstance(other, list):
        return len(item) == len(other) and all(map(_close, item, other))
    if isinstance(item, dict) and isinstance(other, dict):
        return item.keys() == other.keys() and all(_close(item[name], other[name]) for name in item)
    if isinstance(item, int | float) and isinstance(other, int | float):
        return math.isclose(item, other, rel_tol=_RELATIVE, abs_tol=_ABSOLUTE)
    return bool(item == other)
