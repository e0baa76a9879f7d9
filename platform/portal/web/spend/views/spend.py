"""Spend: by person and purpose, idle waste, exports, prices, rent or buy."""

import json
from dataclasses import asdict
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from portal.accounts.gates import Administrator, ProjectRole, SignedIn, gated_project
from portal.accounts.principal import require_principal
from portal.compute.models import Tier
from portal.core import clock
from portal.core.policy import guarded_by
from portal.spend.focus import focus_download
from portal.spend.forecasts import forecast_of
from portal.spend.models import Budget
from portal.spend.models.ledger import KIND_STORAGE
from portal.spend.presenters import present_idle, present_overhead, present_spend, visible_scope
from portal.spend.queries import Scope as Whose
from portal.spend.queries import compute_live_cost, spending_of, spent_in
from portal.spend.rent_vs_buy import HOURS_A_MONTH, Assumptions, compare
from portal.spend.services.prices import current_rates, price_resource
from portal.spend.windows import MONTH, TODAY, WEEK, Window, next_month, window_of
from portal.web.base.form_submission import sent, status_of, submit_form
from portal.web.base.list_query import search_parameter
from portal.web.base.shortlist import shortlist
from portal.web.spend.forms import RatesForm, RentOrBuy
from slipway.schemas.accounts import Role, Scope
from slipway.schemas.money import plain_dollars
from slipway.schemas.spend import GroupCostOut, ShareOut, SpendOut

_MINE = SignedIn(Scope.WORKLOADS_READ)
_PROJECT = ProjectRole(Role.VIEWER, Scope.WORKLOADS_READ)
_WHERE = {"area": "spend"}
_BUDGETS_AT_HOME = 3
_BUDGETS_SHOWN = 50
_SHARES_SHOWN = 15
# Defaults without data: a small server without GPUs.
_PRICE = 9000.0
_HOURS = 400.0


@guarded_by(_MINE)
@require_safe
def spend(request: HttpRequest) -> HttpResponse:
    """Show what all projects in sight have cost, live."""
    principal = require_principal(request)
    shown = present_spend(visible_scope(principal), _window(request))
    budgets = Budget.objects.visible_to(principal)
    context = _page(request, shown) | {
        "budgets": shortlist(budgets.select_related("project", "team", "person"), _BUDGETS_SHOWN),
        "idle": present_idle(principal, shown.window),
        "export_route": "spend_export",
    }
    return render(request, "web/spend/spend.html", context | _WHERE)


@guarded_by(_PROJECT)
@require_safe
def project_spend(request: HttpRequest, project: str) -> HttpResponse:
    """Show what one project has cost, live."""
    project_row = gated_project(request)
    shown = present_spend(Whose(projects=(project_row.pk,)), _window(request))
    budgets = Budget.objects.over(project=project_row.pk, team=project_row.team_id or "", person="")
    context = _page(request, shown) | {
        "budgets": list(budgets.filter(person=None).select_related("project", "team", "person")),
        "is_project": True,
        "area": "projects",
        "section": "spend",
    }
    return render(request, "web/spend/spend.html", context)


@guarded_by(Administrator())
@require_safe
def spend_installation(request: HttpRequest) -> HttpResponse:
    """Show the spend of the installation, without single runs, which administrators may not see."""
    principal = require_principal(request)
    shown = present_spend(Whose(), _window(request), with_runs=False)
    context = _page(request, shown) | {
        "is_installation": True,
        "overhead": present_overhead(shown.window),
        "idle": present_idle(principal, shown.window),
        "budgets": shortlist(
            Budget.objects.select_related("project", "team", "person"), _BUDGETS_SHOWN
        ),
    }
    return render(request, "web/spend/spend.html", context | _WHERE)


def _window(request: HttpRequest) -> str:
    return search_parameter(request, "window") or MONTH


def _page(request: HttpRequest, shown: SpendOut) -> dict[str, Any]:
    window = window_of(shown.window, shown.as_of)
    present = window_of(MONTH, shown.as_of).name
    splits = [
        ("By project", shown.by_project),
        ("By person", shown.by_person),
        ("By tier", shown.by_tier),
        ("By kind", shown.by_kind),
    ]
    if shown.by_tag:
        only = f", the {len(shown.by_tag)} with the highest cost" if shown.are_tags_left_out else ""
        splits.append((f"By tag{only}", shown.by_tag))
    return {
        "shown": shown,
        "label": window.label,
        "is_present": shown.window in (present, TODAY, WEEK),
        "presets": [(TODAY, "Today"), (WEEK, "7 days"), (present, "This month")],
        "before": _month_beside(window, back=True),
        "after": None if shown.window == present else _month_beside(window, back=False),
        "splits": [(title, _parts(shares, shown.nano_usd)) for title, shares in splits],
        "grouped": _grouped(shown),
        "storage": next((share.nano_usd for share in shown.by_kind if share.id == KIND_STORAGE), 0),
        "days": json.dumps([[day.day.isoformat(), day.nano_usd / 1e9] for day in shown.by_day]),
        "query": f"?window={shown.window}",
    }


def _parts(shares: list[ShareOut], total: int) -> list[tuple[ShareOut, int]]:
    """Return shares with their percentage. The rest after the top by cost is one, so all add up."""
    shown, others = shares[:_SHARES_SHOWN], shares[_SHARES_SHOWN:]
    if len(others) > 1:
        rest = sum(share.nano_usd for share in others)
        shown = [*shown, ShareOut(id="", name=f"{len(others)} others", nano_usd=rest)]
    else:
        shown = shares
    return [(share, max(0, 100 * share.nano_usd // total) if total > 0 else 0) for share in shown]


def _grouped(shown: SpendOut) -> list[tuple[str, str, str, list[GroupCostOut], bool]]:
    """Return title, noun, what is counted, the rows and whether there are more, for each table."""
    values: dict[tuple[str, str], list[GroupCostOut]] = {}
    for group_cost in shown.groups:
        values.setdefault((group_cost.noun, group_cost.work), []).append(group_cost)
    return [
        (f"By {noun}", noun, work, rows, rows[0].kind in shown.groups_left_out)
        for (noun, work), rows in values.items()
    ]


def _month_beside(window: Window, *, back: bool) -> str | None:
    if not window.month:
        return None
    first = window.first
    if not back:
        return f"{next_month(first):%Y-%m}"
    year, month = (first.year, first.month - 1) if first.month > 1 else (first.year - 1, 12)
    return f"{year}-{month:02d}"


@guarded_by(_MINE)
@require_safe
def spend_month(request: HttpRequest) -> HttpResponse:
    """Show the present month in a few lines, for Home."""
    principal, timestamp = require_principal(request), clock.now()
    scope, window = visible_scope(principal), window_of(MONTH, timestamp)
    spent = spent_in(scope, month=window.name, timestamp=timestamp)
    budgets = Budget.objects.visible_to(principal).select_related("project", "team", "person")
    context = {
        "spent": spent,
        "rate": compute_live_cost(scope, timestamp).nano_usd_per_hour,
        "forecast": forecast_of(scope, timestamp, spent_nano_usd=spent),
        "budgets": shortlist(budgets.order_by("-spent_nano_usd"), _BUDGETS_AT_HOME),
        "label": window.label,
    }
    return render(request, "web/spend/month.html", context)


@guarded_by(_MINE)
@require_safe
def spend_export(request: HttpRequest) -> StreamingHttpResponse:
    """Download the lines of all projects in sight as FOCUS columns."""
    return focus_download(visible_scope(require_principal(request)), _window(request))


@guarded_by(_PROJECT)
@require_safe
def project_spend_export(request: HttpRequest, project: str) -> StreamingHttpResponse:
    """Download the lines of one project as FOCUS columns."""
    return focus_download(Whose(projects=(gated_project(request).pk,)), _window(request))


@guarded_by(Administrator())
@require_http_methods(["GET", "HEAD", "POST"])
def spend_rates(request: HttpRequest) -> HttpResponse:
    """Price bare resources: what idle capacity and stored bytes cost."""
    rates = current_rates()
    form = RatesForm(
        sent(request),
        initial={rate.resource: plain_dollars(rate.nano_usd_per_hour) for rate in rates},
    )
    done = submit_form(request, form, _set_prices)
    if done:
        messages.success(request, "Prices saved. They apply from now on.")
        return redirect("spend_rates")
    tiers = Tier.objects.offered().order_by("slug")
    context = {"form": form, "rates": rates, "tiers": tiers}
    return render(request, "web/spend/rates.html", context | _WHERE, status=status_of(form))


def _set_prices(data: dict[str, Any]) -> int:
    for resource, nano_usd in data.items():
        price_resource(resource=resource, nano_usd_per_hour=nano_usd)
    return len(data)


@guarded_by(_MINE)
@require_safe
def spend_rent_or_buy(request: HttpRequest) -> HttpResponse:
    """Compare renting the present usage with owning it. Every assumption can be changed."""
    start = asdict(_from_use(request))
    given = {name: request.GET.get(name) or value for name, value in start.items()}
    form = RentOrBuy(given)
    assumptions = Assumptions(**form.cleaned_data) if form.is_valid() else None
    compared = compare(assumptions) if assumptions is not None else None
    context = {
        "form": form,
        "given": assumptions,
        "compared": compared,
        "curves": json.dumps(
            {"renting": compared.renting, "owning": compared.owning} if compared else {}
        ),
        "is_own_use": "used_hours" not in request.GET,
    }
    return render(request, "web/spend/rent_or_buy.html", context | _WHERE)


def _from_use(request: HttpRequest) -> Assumptions:
    """Extrapolate the last 7 days on the tier with the highest cost to a month."""
    scope, week = visible_scope(require_principal(request)), window_of(WEEK, clock.now())
    used = spending_of(scope, week, with_runs=False).by_tier
    tiers = Tier.objects.filter(pk__in=used, nano_usd_per_hour__gt=0)
    tier = max(tiers, key=lambda tier: used[tier.pk], default=None)
    if tier is None:
        return Assumptions(rent_per_hour=0.5, used_hours=_HOURS, price=_PRICE)
    rent = tier.nano_usd_per_hour / 1e9
    hours = used[tier.pk] / tier.nano_usd_per_hour * HOURS_A_MONTH / (7 * 24)
    return Assumptions(
        rent_per_hour=rent,
        used_hours=round(hours, 1),
        price=_PRICE if not tier.gpus else 30_000.0 * tier.gpus,
        watts=300.0 if not tier.gpus else 900.0 * tier.gpus,
    )
