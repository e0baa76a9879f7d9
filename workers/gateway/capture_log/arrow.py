"""Segments of the capture log as Arrow tables, column by column, without a Python object per row.

Only the shipper imports this module, so that the gateway does not load numpy and pyarrow.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from workers.gateway.capture_log.format import FALLBACK, SHADOW
from workers.serving.wire import Contract

_HOUR_NS: Final = 3600 * 10**9
_GOOD: Final = pa.scalar(200, pa.int16())
_CONTRACTS: Final = pa.array([contract.name.lower() for contract in sorted(Contract)])
SCHEMA: Final = pa.schema(
    [
        ("prediction_id", pa.string()),
        ("answered_at", pa.timestamp("us", tz="UTC")),
        ("revision", pa.string()),
        ("model", pa.string()),
        ("model_version", pa.string()),
        ("key_id", pa.string()),
        ("contract", pa.string()),
        ("latency_us", pa.int64()),
        ("is_shadow", pa.bool_()),
        # Answered by a standby in place of the revisions with traffic. Null in older files.
        ("is_fallback", pa.bool_()),
        # 200, or the status of a failed prediction. Null in old files, which lack the column.
        ("status", pa.int16()),
        # Text (JSON or CSV). Binary tensors are in the columns that follow.
        ("request", pa.string()),
        ("response", pa.string()),
        ("request_bytes", pa.binary()),
        ("response_bytes", pa.binary()),
    ]
)


# Low-cardinality columns are dictionary-encoded, so no string is hashed per row. In the file they
# are plain strings, and are read as such.
_WORDS: Final = pa.dictionary(pa.int32(), pa.string())
_FEW: Final = ("revision", "model", "model_version", "key_id", "contract")
WRITTEN: Final = pa.schema(
    [field.with_type(_WORDS) if field.name in _FEW else field for field in SCHEMA]
)


@dataclass(frozen=True, slots=True)
class Part:
    """Predictions of one revision: columns of `(n,)`, and `(n, 2)` lengths of JSON before tensors.

    None in an optional column means the default of all rows: no tensors, scoring in JSON, no
    shadow, answered.
    """

    context: dict[str, Any]
    names: pa.Array
    at_ns: np.ndarray[Any, Any]
    keys: pa.Array
    took_us: np.ndarray[Any, Any]
    requests: pa.Array
    responses: pa.Array
    heads: np.ndarray[Any, Any] | None = None
    contracts: np.ndarray[Any, Any] | None = None
    flags: np.ndarray[Any, Any] | None = None
    status: np.ndarray[Any, Any] | None = None

    def select(self, mask: np.ndarray[Any, Any]) -> "Part":
        """Return the predictions that the mask selects."""
        chosen = pa.array(mask)
        values = {}
        for field in fields(self):
            column = getattr(self, field.name)
            if isinstance(column, np.ndarray):
                values[field.name] = column[mask]
            elif isinstance(column, pa.Array):
                values[field.name] = column.filter(chosen)
        return replace(self, **values)


class RedactBody(Protocol):
    """Callable that redacts a body and returns it with the length of its JSON before tensors."""

    def __call__(
        self, revision: str, body: bytes, head: int, *, is_input: bool, is_failed: bool = False
    ) -> tuple[bytes, int]:
        """Return the redacted body and length."""


def by_hour(part: Part) -> Iterator[tuple[str, Part]]:
    """Yield the name and the predictions of each hour."""
    hours = part.at_ns // _HOUR_NS
    if not len(hours):
        return
    is_one = hours.min() == hours.max()
    for hour in (hours[:1] if is_one else np.unique(hours)).tolist():
        name = f"{datetime.fromtimestamp(hour * 3600, UTC):%Y-%m-%dT%H}"
        yield name, part if is_one else part.select(hours == hour)


def table_of(part: Part, hide: RedactBody | None = None) -> pa.Table:
    """Return predictions in the schema WRITTEN, with each body redacted by `hide`."""
    count = len(part.names)
    same = pa.array(np.zeros(count, np.int32))
    requested, asked_bytes = _side(part, 0, hide)
    value, said_bytes = _side(part, 1, hide)
    micros = (part.at_ns // 1000).astype(np.int64)
    return pa.Table.from_arrays(
        [
            part.names,
            pa.array(micros).cast(pa.timestamp("us", tz="UTC")),
            *(
                pa.DictionaryArray.from_arrays(same, pa.array([part.context[name]], pa.string()))
                for name in ("revision", "model", "model_version")
            ),
            part.keys,
            pa.DictionaryArray.from_arrays(
                same if part.contracts is None else pa.array(part.contracts.astype(np.int32)),
                _CONTRACTS,
            ),
            pa.array(part.took_us.astype(np.int64)),
            _flagged(part.flags, SHADOW, count),
            _flagged(part.flags, FALLBACK, count),
            _status(part.status, count),
            *(requested, value, asked_bytes, said_bytes),
        ],
        schema=WRITTEN,
    )


def _status(value: np.ndarray[Any, Any] | None, count: int) -> pa.Array:
    if value is None:
        return pa.repeat(_GOOD, count)
    return pa.array(np.where(value == 0, 200, value).astype(np.int16))


def _flagged(flags: np.ndarray[Any, Any] | None, flag: int, count: int) -> pa.Array:
    return pa.array(np.zeros(count, np.bool_) if flags is None else flags & flag > 0)


def names_of(fixed: np.ndarray[Any, Any]) -> pa.Array:
    """Return ids as strings, without a copy if all have full length and are ASCII."""
    width = fixed.dtype.itemsize
    letters = np.ascontiguousarray(fixed).view(np.uint8)
    if not letters.reshape(-1, width).all() or (letters > 127).any():
        return text_of(fixed)
    ends = np.arange(0, len(letters) + 1, width, dtype=np.int32)
    return pa.StringArray.from_buffers(len(fixed), pa.py_buffer(ends), pa.py_buffer(letters))


def text_of(fixed: np.ndarray[Any, Any]) -> pa.Array:
    # numpy strips trailing zeros.
    return pa.array(np.ascontiguousarray(fixed), pa.binary()).cast(pa.string())


def _side(part: Part, number: int, hide: RedactBody | None) -> tuple[pa.Array, pa.Array]:
    """Return the texts and the bytes behind them of all inputs (0), or of all outputs (1)."""
    bodies = part.responses if number else part.requests
    heads = None if part.heads is None else part.heads[:, number]
    if hide is None and (heads is None or not heads.any()):
        return _readable(bodies), pa.nulls(len(bodies), pa.binary())
    lengths = [0] * len(bodies) if heads is None else heads.tolist()
    rows = list(zip(bodies.to_pylist(), lengths, strict=True))
    if hide is not None:
        status = np.zeros(len(bodies)) if part.status is None else part.status
        failed = ~np.isin(status, (0, 200))
        rows = [
            (body, head)
            if number and is_failed
            else hide(
                part.context["revision"], body, head, is_input=number == 0, is_failed=is_failed
            )
            for (body, head), is_failed in zip(rows, failed.tolist(), strict=True)
        ]
    texts = [body[:head] if head else body for body, head in rows]
    tails = [body[head:] if head else None for body, head in rows]
    return _readable(pa.array(texts, pa.large_binary())), pa.array(tails, pa.binary())


def _readable(bodies: pa.Array) -> pa.Array:
    try:
        if pa.types.is_binary(bodies.type):
            return pc.cast(bodies, pa.string())
        return pc.cast(bodies, pa.large_string()).cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([body.decode(errors="replace") for body in bodies.to_pylist()], pa.string())
