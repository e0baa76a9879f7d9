"""Formatting of budgets."""

from datetime import datetime

from portal.spend.models import Budget
from slipway.schemas.spend import BudgetPeriod


def describe_period(budget: Budget) -> str:
    """Return the period of the limit in words: `for November 2026`, or `in total`."""
    if budget.period == BudgetPeriod.TOTAL or not budget.window:
        return "in total" if budget.period == BudgetPeriod.TOTAL else "a month"
    return f"for {datetime.strptime(budget.window, '%Y-%m'):%B %Y}"  # noqa: DTZ007  (only a name)
