"""Rows in the format of a backup, which is the same for SQLite and PostgreSQL.

Times are text in UTC as SQLite stores them, booleans are 0 or 1, JSON is text with sorted keys,
bytes are `{"b64": …}`. A table's digest is the sum of its rows' SHA-256, in any order.
"""

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

Row = list[Any]
_MODULUS = 1 << 256
_BYTES = "b64"


def plain(value: Any, *, is_json: bool) -> Any:
    """Convert a value of either database to the format of a backup."""
    if is_json and value is not None:
        return canonical(json.loads(value) if isinstance(value, (str, bytes)) else value)
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, datetime):
        moved = value.astimezone(UTC) if value.tzinfo else value
        return str(moved.replace(tzinfo=None))
    if isinstance(value, (bytes, memoryview)):
        return {_BYTES: base64.b64encode(bytes(value)).decode()}
    if isinstance(value, UUID):
        return value.hex
    if value is None or isinstance(value, (int, float, str)):
        return value
    if isinstance(value, (date, Decimal)):
        return str(value)
    return str(value)


def canonical(value: Any) -> str:
    """Return JSON as text with sorted keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def is_row(value: Any, columns: int) -> bool:
    """Return True if a line of a backup is a row with that number of columns."""
    return isinstance(value, list) and len(value) == columns and all(map(_is_value, value))


def _is_value(value: Any) -> bool:
    if not isinstance(value, dict):
        return value is None or isinstance(value, (str, int, float))
    text = value.get(_BYTES)
    if len(value) != 1 or not isinstance(text, str):
        return False
    try:
        base64.b64decode(text, validate=True)
    except ValueError:
        return False
    return True


def bytes_in(value: Any) -> bytes | None:
    """Return the bytes that a value of a backup represents, or None where it is no bytes."""
    if isinstance(value, dict):
        return base64.b64decode(value[_BYTES])
    return None


@dataclass
class Tally:
    """Row count of a table, the sum of its rows' digests, and the sums of its money columns.

    A money column is a column of integers whose name contains nano: prices, costs and limits.
    """

    columns: Sequence[str]
    rows: int = 0
    digest: int = 0
    nano: dict[str, int] = field(default_factory=dict)

    def add(self, row: Row) -> bytes:
        """Count a row and return it as one line."""
        line = json.dumps(row, separators=(",", ":"), ensure_ascii=False).encode()
        self.rows += 1
        digest = hashlib.sha256(line).digest()
        self.digest = (self.digest + int.from_bytes(digest, "big")) % _MODULUS
        for name, value in zip(self.columns, row, strict=True):
            if "nano" in name and isinstance(value, int):
                self.nano[name] = self.nano.get(name, 0) + value
        return line

    def through(self, rows: Iterable[Row]) -> Iterator[bytes]:
        """Count rows as they pass."""
        for row in rows:
            yield self.add(row)

    def facts(self) -> dict[str, Any]:
        """Return the entry of the table in the manifest."""
        return {"rows": self.rows, "digest": f"{self.digest:064x}", "nano": self.nano}
