"""Formatting of money and budgets."""

from datetime import datetime
from decimal import Decimal

from portal.spend.models import Budget
from slipway.schemas.spend import BudgetPeriod

_NANO = 1_000_000_000


def dollars(nano_usd: int) -> str:
    """Format an amount with at least two decimals, and as many as show it to 1 %."""
    amount = Decimal(abs(nano_usd)) / _NANO
    decimals = next(
        (few for few in (2, 3, 4, 6) if abs(round(amount, few) - amount) * 100 <= amount), 9
    )
    return f"{'-' if nano_usd < 0 else ''}${amount:,.{decimals}f}"


def period_words(budget: Budget) -> str:
    """Return the period of the limit in words: `for November 2026`, or `in total`."""
    if budget.period == BudgetPeriod.TOTAL or not budget.window:
        return "in total" if budget.period == BudgetPeriod.TOTAL else "a month"
    return f"for {datetime.strptime(budget.window, '%Y-%m'):%B %Y}"  # noqa: DTZ007  (only a name)
