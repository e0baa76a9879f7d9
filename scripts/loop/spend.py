"""The steps of money: a budget, and what everything has cost."""

from typing import Final

from scripts.loop.data import PROJECT
from scripts.loop.steps import DemoError, show
from slipway import Client
from slipway.schemas.money import NANO, dollars
from slipway.schemas.spend import BudgetOut

_LIMIT_NANO_USD: Final = 25 * NANO


def set_budget(client: Client) -> None:
    """Limit what the project may spend in a month, unless it is limited."""
    budget = _budget(client) or client.budgets.create(_LIMIT_NANO_USD, project=PROJECT)
    show("budget", f"{dollars(budget.limit_nano_usd)} a month  {client.url}/p/{PROJECT}/spend")


def _budget(client: Client) -> BudgetOut | None:
    found = (one for one in client.budgets.list() if one.name == f"project {PROJECT}")
    return next(found, None)


def show_spend(client: Client) -> None:
    """Print what the project has cost this month, by kind of work, and what its budget has left."""
    found = client.spend.get(project=PROJECT)
    for kind in found.by_kind:
        show(kind.name, f"{dollars(kind.nano_usd)}, exactly {kind.nano_usd / NANO:.9f} USD")
    show("in all", f"{dollars(found.nano_usd)}  {client.url}/p/{PROJECT}/spend")
    show("now", f"{dollars(found.nano_usd_per_hour)} an hour")
    budget = _budget(client)
    if budget is None or not found.nano_usd:
        raise DemoError("the project has no budget, or nothing was spent")
    show(
        "budget",
        f"{dollars(budget.spent_nano_usd)} of {dollars(budget.limit_nano_usd)} used, "
        f"{dollars(budget.reserved_nano_usd)} reserved, {dollars(budget.left_nano_usd)} left",
    )
