"""Forecast of the cost of a month, with a range. No Django, no I/O."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from math import sqrt
from statistics import fmean, stdev

LEAST_DAYS = 3
MOST_DAYS = 14
# Of a normal distribution, the middle 80 %.
_Z = 1.2816


@dataclass(frozen=True)
class Forecast:
    """Forecast of the month's cost: the expected value, and an 80 % interval from low to high.

    `days_seen` is the number of whole days it is based on.
    """

    nano_usd: int
    low_nano_usd: int
    high_nano_usd: int
    days_seen: int


def forecast(
    *,
    spent_nano_usd: int,
    by_day: Mapping[date, int],
    began: date,
    now: datetime,
    month_end: datetime,
) -> Forecast | None:
    """Return the forecast of the month's cost, or None with fewer than three days of history.

    `by_day` has the cost of whole days before today (a missing day cost nothing), `began` is the
    first day with any cost. The days left vary about the mean of the last fourteen as those did,
    and the mean itself is uncertain because of the few days it is based on. The range includes
    both.
    """
    today = now.date()
    seen = min(MOST_DAYS, (today - began).days)
    if seen < LEAST_DAYS:
        return None
    days = [by_day.get(today - timedelta(days=back), 0) for back in range(1, seen + 1)]
    left = max(0.0, (month_end - now) / timedelta(days=1))
    mean, spread = fmean(days), stdev(days)
    error = spread * sqrt(left + left * left / seen)
    expected = spent_nano_usd + mean * left
    return Forecast(
        nano_usd=round(expected),
        low_nano_usd=max(spent_nano_usd, round(expected - _Z * error)),
        high_nano_usd=round(expected + _Z * error),
        days_seen=seen,
    )
