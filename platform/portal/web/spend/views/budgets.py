"""Budgets: the list, setting one, one budget with its alerts, letting pass, removing."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from portal.accounts.gates import SignedIn
from portal.accounts.models import Project
from portal.accounts.models.tenancy import Membership
from portal.accounts.principal import require_principal
from portal.core import clock
from portal.core.policy import guarded_by
from portal.spend.gates import BudgetGate, gated_budget
from portal.spend.models import Budget
from portal.spend.services.budgets import (
    change_budget,
    may_change,
    override_budget,
    remove_budget,
    set_budget,
)
from portal.web.base.confirmation import Confirmation, show_confirmation
from portal.web.base.form_submission import sent, status_of, submit_form
from portal.web.base.list_query import listing
from portal.web.base.shortlist import Shortlist, shortlist
from portal.web.spend.forms import ChangeBudget, Override, SetBudget
from portal.workloads.models import Workload
from portal.workloads.ports import kind_of, registered_kinds
from slipway.schemas.accounts import Role, Scope
from slipway.schemas.money import plain_dollars
from slipway.schemas.workloads import ReasonCode, WorkloadState

ALERTS_SHOWN = 50
STOPPED_SHOWN = 50
_WHERE = {"area": "spend"}


@guarded_by(SignedIn(Scope.PROJECTS_WRITE))
@require_http_methods(["GET", "HEAD", "POST"])
def budgets(request: HttpRequest) -> HttpResponse:
    """List the budgets that concern the person, and set one."""
    principal = require_principal(request)
    form = SetBudget(sent(request), initial={"group": request.GET.get("group", "")[:48]})
    done = submit_form(
        request, form, lambda data: set_budget(by=principal.user, spec=data["payload"])
    )
    if done:
        messages.success(request, f"Budget of {done.result.scope_name} set.")
        return redirect("budget", done.result.pk)
    budgets_queryset = Budget.objects.visible_to(principal).select_related(
        "project", "team", "person"
    )
    shown = listing(request, budgets_queryset)
    owned = Membership.objects.filter(user=principal.user, role=Role.OWNER, project__isnull=False)
    context = {
        "listing": shown,
        "region": "budgets",
        "rows": shown.page.items,
        "form": form,
        "groups": Project.objects.live()
        .filter(pk__in=owned.values("project"))
        .order_by("slug")
        .values_list("slug", flat=True),
    }
    return render(request, "web/spend/budgets.html", context | _WHERE, status=status_of(form))


@guarded_by(BudgetGate(Scope.PROJECTS_READ))
@require_http_methods(["GET", "HEAD", "POST"])
def budget(request: HttpRequest, budget: str) -> HttpResponse:
    """Show one budget. Change it, or suspend its enforcement for a while."""
    budget_row, user, timestamp = (
        gated_budget(request),
        require_principal(request).user,
        clock.now(),
    )
    asks = request.POST.get("do", "")
    change = ChangeBudget(
        sent(request) if asks != "override" else None,
        initial={
            "limit": plain_dollars(budget_row.limit_nano_usd),
            "stops": budget_row.stops,
            "counts_exempt": budget_row.counts_exempt,
        },
    )
    override = Override(sent(request) if asks == "override" else None)
    done = (
        submit_form(request, override, lambda data: _override(budget_row, user, data))
        if asks == "override"
        else submit_form(request, change, lambda data: _change(budget_row, user, data))
    )
    if done:
        messages.success(request, "Budget changed.")
        return redirect("budget", budget_row.pk)
    context = {
        "budget": budget_row,
        "is_used_up": budget_row.is_used_up(timestamp),
        "is_overridden": budget_row.is_overridden(timestamp),
        "part": min(100, budget_row.spent_nano_usd * 100 // budget_row.limit_nano_usd),
        "alerts": shortlist(budget_row.alerts.order_by("-pk"), ALERTS_SHOWN),
        "stopped": _stopped_by(request, budget_row),
        "may_change": may_change(budget_row, user),
        "change": change,
        "override": override,
    }
    status = max(status_of(change), status_of(override))
    return render(request, "web/spend/budget.html", context | _WHERE, status=status)


def _change(budget_row: Budget, user: Any, data: dict[str, Any]) -> Budget:
    return change_budget(
        budget=budget_row,
        by=user,
        limit_nano_usd=data["limit"],
        stops=data["stops"],
        counts_exempt=data["counts_exempt"],
    )


def _override(budget_row: Budget, user: Any, data: dict[str, Any]) -> Budget:
    return override_budget(budget=budget_row, by=user, hours=data["hours"], reason=data["reason"])


def _stopped_by(request: HttpRequest, budget_row: Budget) -> Shortlist[tuple[Workload, str]]:
    """Return workloads that budgets have stopped and the URL that resumes each.

    Only workloads that the person may see.
    """
    kinds = registered_kinds().values()
    stopped = Workload.objects.visible_to(require_principal(request)).filter(
        state=WorkloadState.STOPPED,
        reason=ReasonCode.BUDGET,
        kind__in=[kind.name for kind in kinds if kind.presentation.resume_page],
    )
    if budget_row.project_id:
        stopped = stopped.filter(project=budget_row.project_id)
    elif budget_row.team_id:
        stopped = stopped.filter(team=budget_row.team_id)
    else:
        stopped = stopped.filter(submitted_by=budget_row.person_id)
    shown = shortlist(stopped.select_related("project").order_by("-pk"), STOPPED_SHOWN)
    return shown.replaced_by(
        (
            workload,
            reverse(
                kind_of(workload.kind).presentation.resume_page,
                args=[workload.project.slug, workload.pk],
            ),
        )
        for workload in shown
    )


@guarded_by(BudgetGate(Scope.PROJECTS_WRITE, change=True))
@require_http_methods(["GET", "HEAD", "POST"])
def budget_delete(request: HttpRequest, budget: str) -> HttpResponse:
    """Ask, then remove a limit."""
    budget_row = gated_budget(request)
    if request.method == "POST":
        remove_budget(budget=budget_row, by=require_principal(request).user)
        messages.success(request, f"{budget_row.scope_name} no longer has this limit.")
        return redirect("budgets")
    question = Confirmation(
        title=f"Remove the budget of {budget_row.scope_name}?",
        effects=(
            "This budget no longer refuses or stops work.",
            "Past spend stays in the ledger; the audit log records the removal.",
        ),
        button="Remove the budget",
        back=reverse("budget", args=[budget_row.pk]),
        **_WHERE,
    )
    return show_confirmation(request, question)
