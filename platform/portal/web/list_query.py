"""Lists: what the address says about filtering, sorting and paging."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Generic, TypeVar

from django.db.models import Model, QuerySet
from django.http import HttpRequest

from portal.core.errors import InvalidInput
from portal.core.pagination import Page, paginate, paginate_sorted
from slipway.schemas.base import forbidden_character

M = TypeVar("M", bound=Model)
PAGE_ROWS = 50
_LONGEST = 254
NEWEST = "newest"


@dataclass(frozen=True)
class ListPage(Generic[M]):
    """One page of a list and its query parameters."""

    page: Page[M]
    sort: str
    first: bool
    filtered: bool


def search_parameter(request: HttpRequest, name: str) -> str:
    """Return one query parameter that is safe to search for, or raise InvalidInput."""
    text = request.GET.get(name, "").strip()
    if len(text) > _LONGEST or forbidden_character(text) is not None:
        raise InvalidInput(
            f"The value of {name} cannot be searched.",
            field=name,
            next_step="Use fewer, plain characters.",
        )
    return text


def listing(
    request: HttpRequest,
    rows: QuerySet[M],
    *,
    sorts: Mapping[str, str] | None = None,
    filters: tuple[str, ...] = ("q",),
    limit: int = PAGE_ROWS,
) -> ListPage[M]:
    """Paginate `rows` by the query parameters `sort` and `cursor`.

    `sorts` maps values of `sort` to text columns. A `-` in front reverses the order. Newest first
    is always available. `filters` are the query parameters that filter the list.
    """
    sort = request.GET.get("sort", NEWEST)
    cursor = request.GET.get("cursor") or None
    column = (sorts or {}).get(sort.removeprefix("-"))
    if column is None:
        sort, page = NEWEST, paginate(rows, cursor=cursor, limit=limit)
    else:
        order = f"-{column}" if sort.startswith("-") else column
        page = paginate_sorted(rows, order=order, cursor=cursor, limit=limit)
    filtered = any(request.GET.get(name) for name in filters)
    return ListPage(page, sort, first=cursor is None, filtered=filtered)


def day(request: HttpRequest, name: str, *, end: bool = False) -> datetime | None:
    """Read a date such as 2026-11-20 as its first moment in UTC, or the one after its last."""
    text = request.GET.get(name, "")
    if not text:
        return None
    try:
        start = datetime.combine(date.fromisoformat(text), time(), UTC)
        return start + timedelta(days=1) if end else start
    except (ValueError, OverflowError) as error:
        raise InvalidInput(
            f"“{text[:20]}” is not a date.", field=name, next_step="For example 2026-11-20."
        ) from error
