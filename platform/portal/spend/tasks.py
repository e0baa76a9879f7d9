"""Celery tasks of the app."""

from datetime import timedelta

from portal.core.enqueue import background_task
from portal.spend.budget_enforcement import watch_budgets as watch_all
from portal.spend.holding_sync import sync_holdings
from portal.spend.meter import meter as meter_due

# Task → how often it runs even if it is not enqueued.
PERIODIC = {
    "spend.meter": timedelta(seconds=10),
    "spend.watch_budgets": timedelta(seconds=3),
    "spend.update_holdings": timedelta(minutes=1),
}


@background_task("spend.meter")
def meter() -> None:
    """Write the lines that are due."""
    meter_due()


@background_task("spend.watch_budgets")
def watch_budgets() -> None:
    """Measure budgets, send alerts, stop workloads over the limit."""
    watch_all()


@background_task("spend.update_holdings")
def update_holdings() -> None:
    """Sync holdings with the nodes and the stored bytes."""
    sync_holdings()
