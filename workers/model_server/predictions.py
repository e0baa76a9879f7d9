"""Answers: what a model gave, cut into the rows of each request and written down."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import orjson

from workers.model_server.arrays import Array
from workers.model_server.errors import ModelServerError
from workers.model_server.plain import dumps, has_infinity

INFINITE: Final = (
    "The model returned infinite numbers, which JSON does not support; they are null here. "
    "Request binary tensors of the Open Inference Protocol to get them unchanged."
)


class UnevenOutputs(ModelServerError):
    """The outputs do not have a row for each row of the inputs, so they cannot be cut."""


def cut(outputs: Any, counts: Sequence[int]) -> list[Any]:
    """Split the outputs of a batch by request. Raises UnevenOutputs."""
    if len(counts) == 1:
        return [outputs]
    ends = np.cumsum(counts).tolist()
    spans = [slice(end - count, end) for count, end in zip(counts, ends, strict=True)]
    if isinstance(outputs, dict):
        pieces = {name: cut(value, counts) for name, value in outputs.items()}
        return [{name: pieces[name][at] for name in pieces} for at in range(len(counts))]
    if isinstance(outputs, tuple):
        parts = [cut(value, counts) for value in outputs]
        return [tuple(part[at] for part in parts) for at in range(len(counts))]
    if not hasattr(outputs, "__len__") or not np.ndim(outputs) or len(outputs) != ends[-1]:
        raise UnevenOutputs
    by_place = getattr(outputs, "iloc", outputs)
    return [by_place[span] for span in spans]


def write_scoring(outputs: Any) -> bytes:
    """Return the body of a response of the scoring contract.

    JSON has no infinite number. It is written as null, like a missing one, and the body says so.
    """
    body = _numbers(outputs) if type(outputs) is np.ndarray else None
    if body is None:
        body = dumps(outputs)
    if b"null" in body and has_infinity(outputs):
        return b'{"predictions":%b,"warnings":[%b]}' % (body, dumps(INFINITE))
    return b'{"predictions":%b}' % body


def _numbers(array: Array) -> bytes | None:
    """Return a numeric array as JSON, in the fewest steps, or None for any other array."""
    if array.dtype.kind not in "biuf":
        return None
    try:
        return orjson.dumps(array, option=orjson.OPT_SERIALIZE_NUMPY)
    except orjson.JSONEncodeError:  # not contiguous, or of an unsupported type
        return None


def write_rows(array: Array, counts: Sequence[int]) -> list[bytes] | None:
    """Return the same bodies for a numeric table, written in one pass, or None for other arrays."""
    if array.ndim != 2 or array.shape[1] == 0 or len(array) != sum(counts):
        return None
    text = _numbers(array) if array.dtype.kind in "iuf" else None
    if text is None or b"null" in text:  # perhaps infinite values, of which responses warn
        return None
    rows = text[2:-2].split(b"],[")
    if counts.count(1) == len(counts):
        return [b'{"predictions":[[%b]]}' % row for row in rows]
    bodies = []
    at = 0
    for count in counts:
        if not count:
            bodies.append(b'{"predictions":[]}')
            continue
        bodies.append(b'{"predictions":[[%b]]}' % b"],[".join(rows[at : at + count]))
        at += count
    return bodies
