"""Demo steps: set a budget, and show the costs."""

from typing import Final

from scripts.loop.data import PROJECT
from scripts.loop.steps import DemoError, show
from slipway import Client
from slipway.schemas.money import NANO, dollars
from slipway.schemas.spend import BudgetOut

_LIMIT_NANO_USD: Final = 25 * NANO


def set_budget(client: Client) -> None:
    """Set a monthly budget for the project, unless it has one."""
    budget = _budget(client) or client.budgets.create(_LIMIT_NANO_USD, project=PROJECT)
    show("budget", f"{dollars(budget.limit_nano_usd)} a month  {client.url}/p/{PROJECT}/spend")


def _budget(client: Client) -> BudgetOut | None:
    budgets = (budget for budget in client.budgets.list() if budget.name == f"project {PROJECT}")
    return next(budgets, None)


def show_spend(client: Client) -> None:
    """Print the project's costs this month, by kind of workload, and the rest of its budget."""
    spend = client.spend.get(project=PROJECT)
    for kind in spend.by_kind:
        show(kind.name, f"{dollars(kind.nano_usd)}, exactly {kind.nano_usd / NANO:.9f} USD")
    show("total", f"{dollars(spend.nano_usd)}  {client.url}/p/{PROJECT}/spend")
    show("now", f"{dollars(spend.nano_usd_per_hour)} an hour")
    budget = _budget(client)
    if budget is None or not spend.nano_usd:
        raise DemoError("the project has no budget, or nothing was spent")
    show(
        "budget",
        f"{dollars(budget.spent_nano_usd)} of {dollars(budget.limit_nano_usd)} used, "
        f"{dollars(budget.reserved_nano_usd)} reserved, {dollars(budget.left_nano_usd)} left",
    )
