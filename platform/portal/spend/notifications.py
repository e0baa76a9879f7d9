"""Notifications about budgets that are used up, or nearly so."""

from django.db.models import F, Q

from portal.accounts.notifications import Audience, Listed, Notification, newest_of
from portal.core import clock
from portal.spend.budget_usage import window_name
from portal.spend.formats import describe_period
from portal.spend.models import Budget
from portal.spend.services.budgets import may_change
from slipway.schemas.money import dollars
from slipway.schemas.notifications import NotificationKind


def budget_notifications(audience: Audience) -> Listed:
    """Return the budgets over the reader's work of which 80 % or more are spent."""
    now = clock.now()

    def notification(budget: Budget) -> Notification | None:
        if budget.window != window_name(budget, now) or budget.is_overridden(now):
            return None
        is_reached = budget.spent_nano_usd >= budget.limit_nano_usd
        percent = budget.spent_nano_usd * 100 // budget.limit_nano_usd
        state = "used up" if is_reached else f"{percent} % used"
        amounts = f"{dollars(budget.spent_nano_usd)} of {dollars(budget.limit_nano_usd)}"
        effect = ""
        if budget.is_used_up(now):
            effect = " New starts are refused, and running work is stopped."
        return Notification(
            id=budget.pk,
            kind=NotificationKind.BUDGET,
            project=budget.project,
            title=f"Budget of {budget.scope_name}: {state}",
            reason=f"{amounts} {describe_period(budget)} are spent.{effect}",
            next_step="Raise the limit, override it for a while, or stop expensive work.",
            route="budget",
            arguments=(budget.pk,),
            since=budget.reached_at or budget.measured_at or budget.created_at,
            waits_for_you=is_reached and may_change(budget, audience.principal.user),
        )

    budgets = Budget.objects.visible_to(audience.principal)
    if audience.project is not None:
        of_team = Q(team=audience.project.team_id) if audience.project.team_id else Q()
        budgets = budgets.filter(Q(project=audience.project) | of_team)
    # Dividing instead of multiplying, because limits may be near the end of 64 bits.
    close = budgets.filter(spent_nano_usd__gte=F("limit_nano_usd") - F("limit_nano_usd") / 5)
    return newest_of(close.select_related("project", "team", "person"), notification)
