"""Measurement of a budget: the amount spent in its window and the amount still reserved."""

from collections import Counter
from datetime import UTC, datetime

from django.db import transaction
from django.db.models import Sum

from portal.spend.ledger import month_of
from portal.spend.models import Budget, Reservation
from portal.spend.queries import Scope, spent_in
from portal.workloads.costs import lease_cost, price_steps, unix_ms
from portal.workloads.lifecycle import ENDS
from portal.workloads.models import Lease, Workload
from slipway.schemas.spend import BudgetPeriod


def window_name(budget: Budget, timestamp: datetime) -> str:
    """Return the current window of a budget: a month (`2026-11`), or `total`."""
    if budget.period == BudgetPeriod.TOTAL:
        return str(BudgetPeriod.TOTAL.value)
    return month_of(timestamp.astimezone(UTC).date())


def scope_of(budget: Budget) -> Scope:
    """Return the scope of the spend that a budget counts."""
    if budget.project_id:
        return Scope(projects=(budget.project_id,))
    return Scope(team=budget.team_id or "", person=budget.person_id or "")


def measure(budget_id: str, timestamp: datetime) -> Budget | None:
    """Bring a budget up to date and return it, or None when it is gone.

    Locks the budget's row, so that concurrent reservations are counted too.
    """
    with transaction.atomic():
        budgets = Budget.objects.select_for_update(of=("self",), no_key=True).filter(pk=budget_id)
        budget = budgets.select_related("project", "team", "person").first()
        if budget is None:
            return None
        window = window_name(budget, timestamp)
        month = "" if budget.period == BudgetPeriod.TOTAL else window
        budget.spent_nano_usd = spent_in(scope_of(budget), month=month, timestamp=timestamp)
        _lower_reservations(budget, timestamp)
        left = Reservation.objects.filter(budget=budget).aggregate(all=Sum("left_nano_usd"))
        budget.reserved_nano_usd = int(left["all"] or 0)
        budget.window, budget.measured_at = window, timestamp
        is_reached = budget.spent_nano_usd >= budget.limit_nano_usd
        budget.reached_at = (budget.reached_at or timestamp) if is_reached else None
        budget.save(
            update_fields=[
                *("spent_nano_usd", "reserved_nano_usd", "window", "measured_at", "reached_at")
            ]
        )
    return budget


def _lower_reservations(budget: Budget, timestamp: datetime) -> None:
    """Lower the reservations of workloads that spend, and release those of finished ones."""
    held = list(Reservation.objects.filter(budget=budget, left_nano_usd__gt=0))
    if not held:
        return
    ids = [reservation.workload for reservation in held]
    states = dict(Workload.objects.filter(pk__in=ids).values_list("pk", "state"))
    leases = list(Lease.objects.filter(workload__in=ids))
    steps = price_steps({lease.tier_id for lease in leases}) if leases else {}
    spent: Counter[str] = Counter()
    for lease in leases:
        prices = steps.get(lease.tier_id, ())
        spent[lease.workload_id] += lease_cost(lease, prices, until_ms=unix_ms(timestamp))
    over = {state.value for state in ENDS}
    for reservation in held:
        left = max(
            0,
            reservation.nano_usd - max(0, spent[reservation.workload] - reservation.base_nano_usd),
        )
        # A workload without a row is in a transaction that is not committed yet.
        left = (
            0 if states.get(reservation.workload) in over else min(left, reservation.left_nano_usd)
        )
        if left != reservation.left_nano_usd:
            Reservation.objects.filter(pk=reservation.pk).update(left_nano_usd=left)
