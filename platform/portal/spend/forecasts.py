"""Forecasts of months from the ledger."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta

from django.db.models import Sum

from portal.spend.forecast_model import MOST_DAYS, Forecast, forecast
from portal.spend.ledger import month_of
from portal.spend.models import DayTotal, Split
from portal.spend.queries import Scope, spent_in
from portal.spend.windows import MONTH, window_of


def forecast_of(
    scope: Scope, timestamp: datetime, *, spent_nano_usd: int | None = None
) -> Forecast | None:
    """Return the forecast of the current month's cost, or None without enough history."""
    window = window_of(MONTH, timestamp)
    today = timestamp.astimezone(UTC).date()
    oldest = today - timedelta(days=MOST_DAYS)
    sums = _days(scope, [oldest + timedelta(days=n) for n in range(MOST_DAYS)])
    earlier = DayTotal.objects.filter(scope.sums_filter(), day__lt=oldest)
    began = oldest if earlier.exists() else min(sums, default=today)
    if spent_nano_usd is None:
        spent_nano_usd = spent_in(scope, month=month_of(today), timestamp=timestamp)
    return forecast(
        spent_nano_usd=spent_nano_usd,
        by_day=sums,
        began=began,
        now=timestamp.astimezone(UTC),
        month_end=window.end,
    )


def _days(scope: Scope, days: Sequence[date]) -> dict[date, int]:
    """Return the cost of each of these days with any spend."""
    if scope.team or scope.person:
        sums = (
            DayTotal.objects.filter(scope.sums_filter(), day__in=days).order_by().values_list("day")
        )
        return dict(sums.annotate(all=Sum("nano_usd")))
    # The same sums, from a hundredth of the rows.
    splits = Split.objects.filter(
        scope.sums_filter(), part="kind", period__in=[day.isoformat() for day in days]
    )
    value = splits.order_by().values_list("period").annotate(all=Sum("nano_usd"))
    return {date.fromisoformat(day): nano_usd for day, nano_usd in value}
