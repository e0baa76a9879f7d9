"""Budgets: spending limits of projects, teams and people."""

from django.http import HttpRequest
from ninja import Router, Status

from portal.accounts.gates import SignedIn
from portal.accounts.principal import require_principal
from portal.api.routing import gate
from portal.api.v1.serializers import PageParameters, page_of
from portal.core import clock
from portal.core.pagination import paginate
from portal.spend.gates import BudgetGate, gated_budget
from portal.spend.models import Budget
from portal.spend.services import budgets as budget_services
from portal.spend.services.budgets import (
    change_budget,
    remove_budget,
    set_budget,
)
from slipway.schemas.accounts import Scope
from slipway.schemas.base import PageOf
from slipway.schemas.spend import BudgetAlertOut, BudgetChange, BudgetIn, BudgetOut, OverrideIn

router = Router(tags=["Budgets"])
_SEE = BudgetGate(Scope.PROJECTS_READ)
_CHANGE = BudgetGate(Scope.PROJECTS_WRITE, change=True)
_ALERTS = 20


def budget_out(budget: Budget) -> BudgetOut:
    """Serialize a budget with its last measurement, at most a few seconds old."""
    timestamp = clock.now()
    overridden = budget.is_overridden(timestamp)
    alerts = list(budget.alerts.order_by("-pk")[: _ALERTS + 1])
    return BudgetOut(
        id=budget.pk,
        scope=budget.scope,
        name=budget.scope_name,
        period=budget.period,
        window=budget.window,
        limit_nano_usd=budget.limit_nano_usd,
        spent_nano_usd=budget.spent_nano_usd,
        reserved_nano_usd=budget.reserved_nano_usd,
        left_nano_usd=budget.left_nano_usd,
        overshoot_nano_usd=budget.overshoot_nano_usd,
        stops=budget.stops,
        counts_exempt=budget.counts_exempt,
        is_used_up=budget.is_used_up(timestamp),
        override_until=budget.override_until if overridden else None,
        override_reason=budget.override_reason if overridden else "",
        alerts=[BudgetAlertOut.model_validate(alert) for alert in alerts[:_ALERTS]],
        alerts_left_out=budget.alerts.count() - _ALERTS if len(alerts) > _ALERTS else 0,
    )


@router.get(
    "/budgets",
    auth=gate(SignedIn(Scope.PROJECTS_READ, confined=True)),
    response=PageOf[BudgetOut],
)
def list_budgets(request: HttpRequest, page: PageParameters) -> PageOf[BudgetOut]:
    """List your budgets and those of your projects and teams. Administrators see all."""
    budgets = Budget.objects.visible_to(require_principal(request))
    budgets = budgets.select_related("project", "team", "person")
    return page_of(paginate(budgets, cursor=page.cursor, limit=page.limit), budget_out)


@router.post("/budgets", auth=gate(SignedIn(Scope.PROJECTS_WRITE)), response={201: BudgetOut})
def create_budget(request: HttpRequest, payload: BudgetIn) -> Status[BudgetOut]:
    """Create a budget for your project or team. Administrators may for any, and for people."""
    made = set_budget(by=require_principal(request).user, spec=payload)
    return Status(201, budget_out(made))


@router.get("/budgets/{budget}", auth=gate(_SEE), response=BudgetOut)
def get_budget(request: HttpRequest, budget: str) -> BudgetOut:
    """Get a budget."""
    return budget_out(gated_budget(request))


@router.patch("/budgets/{budget}", auth=gate(_CHANGE), response=BudgetOut)
def update_budget(request: HttpRequest, budget: str, payload: BudgetChange) -> BudgetOut:
    """Change a budget. Work it stopped can be resumed once there is budget left."""
    changed = change_budget(
        budget=gated_budget(request),
        by=require_principal(request).user,
        limit_nano_usd=payload.limit_nano_usd,
        stops=payload.stops,
        counts_exempt=payload.counts_exempt,
    )
    return budget_out(changed)


@router.delete("/budgets/{budget}", auth=gate(_CHANGE), response={204: None})
def delete_budget(request: HttpRequest, budget: str) -> Status[None]:
    """Delete a budget. Nothing else changes."""
    remove_budget(budget=gated_budget(request), by=require_principal(request).user)
    return Status(204, None)


@router.post("/budgets/{budget}/override", auth=gate(_CHANGE), response=BudgetOut)
def override_budget(request: HttpRequest, budget: str, payload: OverrideIn) -> BudgetOut:
    """Suspend a budget for some hours, audited with the reason. 0 hours end the override."""
    changed = budget_services.override_budget(
        budget=gated_budget(request),
        by=require_principal(request).user,
        hours=payload.hours,
        reason=payload.reason,
    )
    return budget_out(changed)
