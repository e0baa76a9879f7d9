"""Lists: what the address says about filtering, sorting and paging."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Generic, TypeVar

from django.db.models import Model, QuerySet
from django.http import HttpRequest

from portal.core.errors import InvalidInput
from portal.core.pagination import Page, paginate, paginate_sorted
from slipway.schemas.base import forbidden_character

M = TypeVar("M", bound=Model)
PAGE_ROWS = 50
_LONGEST = 254
NEWEST = "newest"
# The `layout` of lists that are among the settings.
SETTINGS_LAYOUT = "web/settings.html"


@dataclass(frozen=True)
class Select:
    """A filter of a list that offers values to choose from, each with its label.

    `default` is the label of no value. It `narrows` if the list then leaves rows out.
    """

    name: str
    label: str
    options: Sequence[tuple[str, str]]
    default: str = "All"
    narrows: bool = False
    value: str = ""


@dataclass(frozen=True)
class ListPage(Generic[M]):
    """One page of a list and its query parameters, as `web/list.html` shows them."""

    page: Page[M]
    sort: str
    first: bool
    filtered: bool
    selects: tuple[Select, ...] = ()

    @property
    def narrows(self) -> bool:
        """Return True if rows may be left out although nothing was chosen."""
        return any(select.narrows for select in self.selects)


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
    selects: tuple[Select, ...] = (),
    limit: int = PAGE_ROWS,
) -> ListPage[M]:
    """Paginate `rows` by the query parameters `sort` and `cursor`.

    `sorts` maps values of `sort` to text columns. A `-` in front reverses the order. Newest first
    is always available. `filters` are the query parameters that filter the list besides those
    of `selects`.
    """
    sort = request.GET.get("sort", NEWEST)
    cursor = request.GET.get("cursor") or None
    column = (sorts or {}).get(sort.removeprefix("-"))
    if column is None:
        sort, page = NEWEST, paginate(rows, cursor=cursor, limit=limit)
    else:
        order = f"-{column}" if sort.startswith("-") else column
        page = paginate_sorted(rows, order=order, cursor=cursor, limit=limit)
    return _shown(request, page, sort=sort, filters=filters, selects=selects)


def listing_of(
    request: HttpRequest, items: Sequence[Any], *, next_cursor: str | None = None
) -> ListPage[Any]:
    """Return a page that was read elsewhere than in a table of ours, such as from MLflow."""
    return _shown(request, Page(items, next_cursor), sort="", filters=("q",))


def _shown(
    request: HttpRequest,
    page: Page[M],
    *,
    sort: str,
    filters: tuple[str, ...],
    selects: tuple[Select, ...] = (),
) -> ListPage[M]:
    chosen = tuple(replace(select, value=request.GET.get(select.name, "")) for select in selects)
    names = (*filters, *(select.name for select in selects))
    return ListPage(
        page,
        sort,
        first=not request.GET.get("cursor"),
        filtered=any(request.GET.get(name) for name in names),
        selects=chosen,
    )


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
