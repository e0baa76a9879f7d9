"""The ledger and its sums, holdings besides leases, prices of resources, budgets."""

from portal.spend.models.budgets import Budget, BudgetAlert, BudgetStop, Reservation
from portal.spend.models.holdings import Holding, RatePrice
from portal.spend.models.ledger import (
    DayTotal,
    LabelTotal,
    LedgerVersion,
    Line,
    MonthTotal,
    NodeDay,
    Split,
    WorkloadTotal,
)

__all__ = [
    "Budget",
    "BudgetAlert",
    "BudgetStop",
    "DayTotal",
    "Holding",
    "LabelTotal",
    "LedgerVersion",
    "Line",
    "MonthTotal",
    "NodeDay",
    "RatePrice",
    "Reservation",
    "Split",
    "WorkloadTotal",
]
