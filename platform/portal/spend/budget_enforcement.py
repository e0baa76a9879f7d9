"""Budget enforcement: measured every few seconds, alerted once, stopped at the limit.

Each budget is handled on its own. Every step may be repeated or interrupted at any point.
"""

from datetime import datetime, timedelta

import structlog
from django.db import IntegrityError, transaction

from portal.accounts.mail import queue_mail
from portal.accounts.models import User
from portal.accounts.models.tenancy import Membership
from portal.core import clock
from portal.spend.budget_usage import measure, scope_of
from portal.spend.forecasts import forecast_of
from portal.spend.formats import describe_period
from portal.spend.models import Budget, BudgetAlert, BudgetStop
from portal.workloads.lifecycle import WAITING
from portal.workloads.models import Workload
from portal.workloads.ports import kind_of
from portal.workloads.services.cancellation import stop_workload
from slipway.schemas.accounts import Role
from slipway.schemas.money import dollars
from slipway.schemas.spend import BudgetPeriod
from slipway.schemas.truncation import shorten
from slipway.schemas.workloads import ReasonCode, WorkloadState

log = structlog.get_logger(__name__)
LEVELS = (50, 80, 100)
FORECAST = "forecast"
_AT_ONCE = 500


def watch_budgets(timestamp: datetime | None = None) -> None:
    """Measure every budget, send due alerts, stop workloads over the limit.

    An error with one budget or workload does not affect the others.
    """
    timestamp = timestamp or clock.now()
    for budget_id in Budget.objects.order_by("pk").values_list("pk", flat=True):
        try:
            _watch(budget_id, timestamp)
        except Exception:
            log.exception("budget_not_checked", budget=budget_id)


def _watch(budget_id: str, timestamp: datetime) -> None:
    budget = measure(budget_id, timestamp)
    if budget is None:
        return
    _alert_reached_levels(budget, timestamp)
    if budget.is_used_up(timestamp):
        _stop(budget, timestamp)
        return
    # A workload that was warned and may continue gets the full warning again next time.
    warned = BudgetStop.objects.filter(budget=budget)
    if warned.exists():
        warned.delete()


def _alert_reached_levels(budget: Budget, timestamp: datetime) -> None:
    spent, limit = budget.spent_nano_usd, budget.limit_nano_usd
    reached = [level for level in LEVELS if spent * 100 >= limit * level]
    known = set(
        BudgetAlert.objects.filter(
            budget=budget, window=budget.window, limit_nano_usd=limit
        ).values_list("level", flat=True)
    )
    for level in reached:
        if str(level) not in known:
            _alert(budget, str(level), _level_message(budget, level))
    if spent < limit and FORECAST not in known and budget.period == BudgetPeriod.MONTH:
        expected = forecast_of(scope_of(budget), timestamp)
        if expected is not None and expected.nano_usd > limit:
            words = (
                f"At the current rate, {budget.scope_name} will spend about "
                f"{dollars(expected.nano_usd)} (between {dollars(expected.low_nano_usd)} and "
                f"{dollars(expected.high_nano_usd)}) {describe_period(budget)}; its budget is "
                f"{dollars(limit)}."
            )
            _alert(budget, FORECAST, words)


def _level_message(budget: Budget, level: int) -> str:
    name = budget.scope_name
    message = (
        f"{name[0].upper()}{name[1:]} has reached {level} % of its budget: "
        f"{dollars(budget.spent_nano_usd)} of {dollars(budget.limit_nano_usd)} "
        f"{describe_period(budget)} are spent."
    )
    if level < LEVELS[-1]:
        return message
    if not budget.stops:
        return f"{message} This budget only sends alerts; running work continues."
    return f"{message} New starts are refused; running work is saved and stopped."


def _alert(budget: Budget, level: str, words: str) -> None:
    """Alert once: the row of the alert and the mails about it commit together."""
    try:
        with transaction.atomic():
            BudgetAlert.objects.create(
                budget=budget,
                window=budget.window,
                limit_nano_usd=budget.limit_nano_usd,
                level=level,
                message=shorten(words, 500),
            )
            subject = f"Slipway: budget of {budget.scope_name}: " + (
                "forecast above the limit" if level == FORECAST else f"{level} %"
            )
            for address in sorted(recipients_of(budget)):
                queue_mail(to=address, subject=subject, body=f"{words}\n")
    except IntegrityError:
        return  # another process alerted concurrently


def recipients_of(budget: Budget) -> set[str]:
    """Return the recipients: owners of the project or team, the person, the budget's creator."""
    items = {budget.made_by.email} if budget.made_by.is_active else set()
    if budget.person is not None:
        return items | {budget.person.email}
    if budget.project is not None:
        members = Membership.objects.reaching(budget.project)
    else:
        members = Membership.objects.filter(team=budget.team_id)
    owners = members.filter(role=Role.OWNER)
    people = User.objects.filter(pk__in=owners.values("user"), is_active=True)
    return items | set(people.values_list("email", flat=True))


def _stop(budget: Budget, timestamp: datetime) -> None:
    """Stop queued and running work: at once, or after the warning period of its kind."""
    workloads = Workload.objects.unfinished().exclude(state=WorkloadState.STOPPING, plan="stop")
    if budget.project_id:
        workloads = workloads.filter(project=budget.project_id)
    elif budget.team_id:
        workloads = workloads.filter(team=budget.team_id)
    else:
        workloads = workloads.filter(submitted_by=budget.person_id)
    for workload in workloads.order_by("pk")[:_AT_ONCE]:
        try:
            _stop_or_warn(workload, budget, timestamp)
        except Exception:
            log.exception("not_stopped_by_budget", workload=workload.pk, budget=budget.pk)


def _stop_or_warn(workload: Workload, budget: Budget, timestamp: datetime) -> None:
    rule = kind_of(workload.kind).budget
    if rule.is_exempt and not budget.counts_exempt:
        return
    is_running = workload.status not in WAITING
    if is_running and rule.warning_s and _is_warned(workload, budget, timestamp):
        return
    stop_workload(
        workload=workload,
        reason=ReasonCode.BUDGET,
        message=stop_message(budget),
        next_step="Resume it when the budget is raised; it continues from its checkpoint.",
    )
    log.info("stopped_by_budget", workload=workload.pk, budget=budget.pk)


def _is_warned(workload: Workload, budget: Budget, timestamp: datetime) -> bool:
    """Warn and request a checkpoint. Return True if there is time left before the stop."""
    rule = kind_of(workload.kind).budget
    notice, _ = BudgetStop.objects.get_or_create(
        workload=workload.pk,
        epoch=workload.epoch,
        defaults={"budget": budget, "stops_at": timestamp + timedelta(seconds=rule.warning_s)},
    )
    if notice.stops_at <= timestamp:
        return False
    rule.save(workload_id=workload.pk, stops_at=notice.stops_at, why=stop_message(budget))
    return True


def stop_message(budget: Budget) -> str:
    """Return the reason for stopping a workload."""
    limit = f"{dollars(budget.limit_nano_usd)} {describe_period(budget)}"
    return f"Stopped by budget: {budget.scope_name} reached 100 % of {limit}."
