"""Budget admission: nothing starts that does not fit a budget."""

from dataclasses import dataclass
from datetime import datetime

from django.db.models import F

from portal.core import clock
from portal.core.errors import Conflict
from portal.spend.budget_usage import measure, window_name
from portal.spend.estimates import CostEstimate, expected_cost, reserve_amount
from portal.spend.formats import describe_period
from portal.spend.models import Budget, Reservation
from portal.workloads.models import Lease
from portal.workloads.ports import AdmissionDeferred, AdmissionGranted, AdmissionRequest, kind_of
from slipway.schemas.money import dollars


@dataclass(frozen=True)
class AdmissionQuote:
    """Quote of a start: its expected cost, and whether each budget admits it."""

    expected: CostEstimate | None
    set_aside_nano_usd: int
    budgets: list[tuple[Budget, bool]]


class BudgetAdmission:
    """Admits workloads that fit every budget of project, team and person, and reserves the cost."""

    def decide(self, request: AdmissionRequest) -> AdmissionGranted | AdmissionDeferred:
        """Reserve in every budget, or raise Conflict with the reason and reserve in none.

        Database work alone, inside the caller's transaction. Asking again about the same workload
        replaces the reservation of its unspent amount.
        """
        budgets = _budgets_of(request)
        if not budgets:
            return AdmissionGranted()
        amount = quoted(request).set_aside_nano_usd
        timestamp = clock.now()
        for budget in budgets:
            _reserve(budget, request, amount, timestamp)
        return AdmissionGranted()


def quoted(request: AdmissionRequest) -> AdmissionQuote:
    """Return the quote of a start without reserving anything."""
    expected = expected_cost(
        project_id=request.project_id,
        kind=request.kind,
        name=request.name,
        tier=request.tier,
        tasks=request.tasks,
        is_preemptible=request.is_preemptible,
    )
    amount = reserve_amount(
        expected,
        nano_usd_per_hour=request.nano_usd_per_hour,
        max_lifetime_s=request.max_lifetime_s,
    )
    timestamp = clock.now()
    return AdmissionQuote(
        expected,
        amount,
        [(budget, _fits_budget(budget, amount, timestamp)) for budget in _budgets_of(request)],
    )


def _fits_budget(budget: Budget, amount: int, timestamp: datetime) -> bool:
    if budget.is_overridden(timestamp) or budget.window != window_name(budget, timestamp):
        return True
    return amount <= budget.left_nano_usd and budget.spent_nano_usd < budget.limit_nano_usd


def _budgets_of(request: AdmissionRequest) -> list[Budget]:
    """Return the budgets that apply to this start, in the order in which all lock them."""
    budgets = Budget.objects.over(
        project=request.project_id, team=request.team_id, person=request.user_id
    ).filter(stops=True)
    if kind_of(request.kind).budget.is_exempt:
        budgets = budgets.filter(counts_exempt=True)
    return list(budgets.select_related("project", "team", "person").order_by("pk"))


def _reserve(budget: Budget, request: AdmissionRequest, amount: int, timestamp: datetime) -> None:
    window = window_name(budget, timestamp)
    if budget.window != window:
        measure(budget.pk, timestamp)
    before = Reservation.objects.filter(budget=budget, workload=request.workload_id).first()
    if before is not None and before.left_nano_usd:
        Budget.objects.filter(pk=budget.pk).update(
            reserved_nano_usd=F("reserved_nano_usd") - before.left_nano_usd
        )
    if not Budget.objects.reserve(budget.pk, nano_usd=amount, window=window, timestamp=timestamp):
        now = Budget.objects.filter(pk=budget.pk).select_related("project", "team", "person")
        current = now.first()
        if current is None:  # removed concurrently, so it limits nothing
            return
        raise _refusal(current, amount)
    spent = Lease.objects.filter(workload=request.workload_id).values_list(
        "billed_nano_usd", flat=True
    )
    Reservation.objects.update_or_create(
        budget=budget,
        workload=request.workload_id,
        defaults={"nano_usd": amount, "left_nano_usd": amount, "base_nano_usd": sum(spent)},
    )


def _refusal(budget: Budget, amount: int) -> Conflict:
    whose = f"The budget of {budget.scope_name}"
    limit = f"{dollars(budget.limit_nano_usd)} {describe_period(budget)}"
    if budget.spent_nano_usd >= budget.limit_nano_usd:
        message = f"{whose} is used up: {dollars(budget.spent_nano_usd)} of {limit} are spent."
    else:
        message = (
            f"{whose} has {dollars(budget.left_nano_usd)} of {limit} left; "
            f"this start needs {dollars(amount)}."
        )
    return Conflict(
        message,
        code="budget_exhausted",
        field="tier",
        next_step="Ask an owner to raise or override the budget, or choose a cheaper tier.",
    )
