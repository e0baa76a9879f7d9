"""Cursor pagination by primary key: stable under inserts, constant cost on any page."""

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from django.db.models import Model, QuerySet

from portal.core.errors import InvalidInput

MAX_LIMIT = 200
DEFAULT_LIMIT = 50
M = TypeVar("M", bound=Model)


@dataclass(frozen=True)
class Page(Generic[M]):
    """One page of rows, newest first, and the cursor of the next one (None on the last page)."""

    items: Sequence[M]
    next_cursor: str | None


def encode_cursor(key: str) -> str:
    """Wrap the last key of a page into the opaque text a client hands back."""
    return base64.urlsafe_b64encode(key.encode()).decode().rstrip("=")


def decode_cursor(cursor: str) -> str:
    """Return the key inside `cursor`; raises InvalidInput for anything we did not make."""
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        key = raw.decode("ascii")
    except (binascii.Error, ValueError) as error:
        raise _bad_cursor() from error
    if not key.isprintable() or not 0 < len(key) <= 200:
        raise _bad_cursor()
    return key


def _bad_cursor() -> InvalidInput:
    return InvalidInput(
        "This cursor was not made by Slipway.",
        code="invalid_cursor",
        field="cursor",
        next_step="Leave the cursor out to start from the first page.",
    )


def paginate(
    rows: QuerySet[M], *, cursor: str | None, limit: int = DEFAULT_LIMIT, by: str = "pk"
) -> Page[M]:
    """Return one page of `rows`, descending by the unique column `by` (ids sort by time).

    `limit` is 1 to MAX_LIMIT rows. Raises InvalidInput for a foreign cursor.
    """
    limit = max(1, min(limit, MAX_LIMIT))
    if cursor:
        rows = rows.filter(**{f"{by}__lt": decode_cursor(cursor)})
    found = list(rows.order_by(f"-{by}")[: limit + 1])
    items = found[:limit]
    more = len(found) > limit
    return Page(items, encode_cursor(str(getattr(items[-1], by))) if more else None)
