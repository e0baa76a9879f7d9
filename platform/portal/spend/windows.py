"""Ranges of time that views and budgets use: days and calendar months, in UTC."""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from portal.core.errors import InvalidInput
from portal.spend.ledger import month_of
from portal.workloads.costs import unix_ms

TODAY, WEEK, MONTH, TOTAL = "today", "7d", "month", "total"
_MONTH = re.compile(r"\A(20\d\d)-(0[1-9]|1[0-2])\Z")


@dataclass(frozen=True)
class Window:
    """A range of whole days. `month` names it when it is a calendar month."""

    name: str
    first: date
    last: date
    month: str = ""

    @property
    def begin(self) -> datetime:
        """Its first instant."""
        return _midnight(self.first)

    @property
    def end(self) -> datetime:
        """The midnight after its last day."""
        return _midnight(self.last + timedelta(days=1))

    @property
    def begin_ms(self) -> int:
        """Its first instant, in Unix milliseconds."""
        return unix_ms(self.begin)

    @property
    def end_ms(self) -> int:
        """The midnight after its last day, in Unix milliseconds."""
        return unix_ms(self.end)

    @property
    def days(self) -> list[date]:
        """Every day of it."""
        return [self.first + timedelta(days=n) for n in range((self.last - self.first).days + 1)]

    @property
    def label(self) -> str:
        """Display name."""
        if self.month:
            return f"{self.first:%B %Y}"
        return "Today" if self.name == TODAY else "The last 7 days"


def window_of(name: str, timestamp: datetime) -> Window:
    """Return `today`, `7d`, `month` or a month such as `2026-11`. Raise InvalidInput."""
    today = timestamp.astimezone(UTC).date()
    if name == TODAY:
        return Window(TODAY, today, today)
    if name == WEEK:
        return Window(WEEK, today - timedelta(days=6), today)
    if name in ("", MONTH):
        name = month_of(today)
    match = _MONTH.match(name)
    if match is None:
        raise InvalidInput(
            f"There is no window {name[:20]}.",
            code="no_such_window",
            field="window",
            next_step="Use today, 7d, month, or a month such as 2026-11.",
        )
    first = date(int(match[1]), int(match[2]), 1)
    return Window(name, first, next_month(first) - timedelta(days=1), month=name)


def next_month(first: date) -> date:
    """Return the first of the month after."""
    return (first.replace(day=28) + timedelta(days=4)).replace(day=1)


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)
