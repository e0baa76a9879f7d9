"""Cursor pagination: stable under inserts, constant cost on any page."""

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Generic, TypeVar

from django.core.exceptions import ValidationError
from django.db.models import Model, Q, QuerySet

from portal.core.errors import InvalidInput

MAX_LIMIT = 200
DEFAULT_LIMIT = 50
_MAX_KEY = 2_000
M = TypeVar("M", bound=Model)


@dataclass(frozen=True)
class Page(Generic[M]):
    """One page of rows, newest first, and the cursor of the next one (None on the last page)."""

    items: Sequence[M]
    next_cursor: str | None


def encode_cursor(key: str) -> str:
    """Encode the last key of a page as the opaque text a client sends back."""
    return base64.urlsafe_b64encode(key.encode()).decode().rstrip("=")


def decode_cursor(cursor: str) -> str:
    """Return the key inside `cursor`. Raise InvalidInput for a cursor not issued here."""
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        key = raw.decode("ascii")
    except (binascii.Error, ValueError) as error:
        raise _bad_cursor() from error
    if not key.isprintable() or not 0 < len(key) <= _MAX_KEY:
        raise _bad_cursor()
    return key


def _bad_cursor() -> InvalidInput:
    return InvalidInput(
        "This cursor is not valid.",
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
        try:
            rows = rows.filter(**{f"{by}__lt": decode_cursor(cursor)})
        except ValueError as error:  # no number, and `by` is a column of numbers
            raise _bad_cursor() from error
    values = list(rows.order_by(f"-{by}")[: limit + 1])
    items = values[:limit]
    more = len(values) > limit
    return Page(items, encode_cursor(str(getattr(items[-1], by))) if more else None)


def paginate_sorted(
    rows: QuerySet[M], *, order: str, cursor: str | None, limit: int = DEFAULT_LIMIT
) -> Page[M]:
    """Return one page of `rows` in the order of a column (`name`, or `-name` for descending).

    The column holds texts or times, may be one of a related row (`user__email`) and must not be
    null. Rows of the same value are ordered by their key. Raises InvalidInput for a foreign cursor.
    """
    column = order.removeprefix("-")
    descending = order.startswith("-")
    limit = max(1, min(limit, MAX_LIMIT))
    if cursor:
        text, key = _decode_pair(cursor)
        beyond = "lt" if descending else "gt"
        try:
            rows = rows.filter(
                Q(**{f"{column}__{beyond}": text}) | Q(**{column: text, f"pk__{beyond}": key})
            )
        except (ValueError, ValidationError) as error:  # no time or number, as the columns have
            raise _bad_cursor() from error
    values = list(rows.order_by(order, "-pk" if descending else "pk")[: limit + 1])
    items = values[:limit]
    if len(values) <= limit:
        return Page(items, None)
    last: Any = reduce(getattr, column.split("__"), items[-1])
    return Page(items, encode_cursor(json.dumps([str(last), str(items[-1].pk)])))


def _decode_pair(cursor: str) -> tuple[str, str]:
    try:
        pair = json.loads(decode_cursor(cursor))
    except ValueError as error:
        raise _bad_cursor() from error
    if not isinstance(pair, list) or len(pair) != 2 or not all(map(_is_text, pair)):
        raise _bad_cursor()
    return pair[0], pair[1]


def _is_text(part: object) -> bool:
    # PostgreSQL accepts neither NUL nor lone surrogates.
    return isinstance(part, str) and "\0" not in part and _encodable(part)


def _encodable(part: str) -> bool:
    try:
        part.encode()
    except UnicodeEncodeError:
        return False
    return True
