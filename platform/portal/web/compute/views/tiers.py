"""Hardware tiers and quotas, for administrators: what is offered, at what price, to whom."""

from collections.abc import Sequence
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from portal.accounts.gates import Administrator
from portal.accounts.models import Project
from portal.compute.models import Node, Quota, Tier, TierPrice
from portal.compute.services.quotas import set_quota
from portal.compute.services.tiers import change_tier, create_tier
from portal.core.errors import NotFound
from portal.core.policy import guarded_by
from portal.spend.services.prices import effect_of_price
from portal.web.base.confirmation import Confirmation, show_confirmation
from portal.web.base.form_submission import sent, status_of, submit_form
from portal.web.base.list_query import SETTINGS_LAYOUT, Select, listing, search_parameter
from portal.web.base.shortlist import shortlist
from portal.web.compute.forms import ChangePrice, NewTier, SetQuota
from portal.workloads.models import Share, Workload
from portal.workloads.placement import Capacity
from portal.workloads.scheduling import read_sites
from slipway.schemas.workloads import DEFAULT_DISCOUNT

SORTS = {"name": "name"}
PRICES_SHOWN = 100
_NANO = 1_000_000_000
_TIERS = {"area": "account", "section": "tiers"}
_QUOTAS = {"area": "account", "section": "quotas"}
_STATES = Select(
    "state", "State", [("all", "All, including retired")], default="Active", narrows=True
)


@guarded_by(Administrator())
@require_safe
def tiers(request: HttpRequest) -> HttpResponse:
    """List the tiers, those no longer offered too when asked."""
    text = search_parameter(request, "q")
    value = Tier.objects.all()
    if request.GET.get("state") != "all":
        value = value.filter(is_active=True)
    value = value.filter(name__icontains=text) if text else value
    shown = listing(request, value, sorts=SORTS, selects=(_STATES,))
    room = Capacity(read_sites())
    rows = [(tier, room.count_of(tier.need)) for tier in shown.page.items]
    context = {"listing": shown, "region": "tiers", "rows": rows, "layout": SETTINGS_LAYOUT}
    return render(request, "web/tiers/list.html", context | _TIERS)


@guarded_by(Administrator())
@require_http_methods(["GET", "HEAD", "POST"])
def tier_new(request: HttpRequest) -> HttpResponse:
    """Offer a new tier."""
    form = NewTier(sent(request))
    done = submit_form(request, form, _create)
    if done:
        messages.success(request, f"{done.result.name} created.")
        return redirect("tiers")
    models = {model for node in Node.objects.present() for model in node.gpu_models}
    context = {"form": form, "models": sorted(models)} | _TIERS
    return render(request, "web/tiers/new.html", context, status=status_of(form))


def _create(data: dict[str, Any]) -> Tier:
    return create_tier(
        name=data["name"],
        slug=data["slug"],
        amount=data["amount"],
        gpu_model=data["gpu_model"],
        labels=data["labels"],
        nano_usd_per_hour=data["price"],
        preemptible_discount=_or_default(data["preemptible_discount"]),
    )


def _or_default(percent: int | None) -> int:
    return DEFAULT_DISCOUNT if percent is None else percent


@guarded_by(Administrator())
@require_http_methods(["GET", "HEAD", "POST"])
def tier(request: HttpRequest, tier: str) -> HttpResponse:
    """Show one tier with its price history. Change the price from now on."""
    tier_row = _get_tier(tier)
    form = ChangePrice(
        sent(request),
        initial={
            "price": f"{tier_row.nano_usd_per_hour / _NANO:.9f}".rstrip("0"),
            "preemptible_discount": tier_row.preemptible_discount,
        },
    )
    effect = None
    if request.POST.get("do") == "preview":
        done = None
        if form.is_valid():
            effect = effect_of_price(tier=tier_row, nano_usd_per_hour=form.cleaned_data["price"])
    else:
        done = submit_form(
            request,
            form,
            lambda data: change_tier(
                tier=tier_row,
                nano_usd_per_hour=data["price"],
                preemptible_discount=data["preemptible_discount"],
            ),
        )
    if done:
        messages.success(request, "New price saved. It applies from now on.")
        return redirect("tier", tier)
    context = {
        "tier": tier_row,
        "form": form,
        "effect": effect,
        "preemptible_price": tier_row.price(is_preemptible=True),
        "prices": shortlist(TierPrice.objects.filter(tier=tier_row), PRICES_SHOWN),
        "free": Capacity(read_sites()).count_of(tier_row.need),
        "fitting": [node.name for node in Node.objects.present() if node.suits(tier_row.need)],
        "active": Workload.objects.active().filter(tier=tier_row).count(),
        "waiting": Workload.objects.queued().filter(tier=tier_row).count(),
    }
    return render(request, "web/tiers/tier.html", context | _TIERS, status=status_of(form))


@guarded_by(Administrator())
@require_POST
def tier_offer(request: HttpRequest, tier: str) -> HttpResponse:
    """Offer a retired tier again."""
    change_tier(tier=_get_tier(tier), is_active=True)
    messages.success(request, f"{tier} is offered again.")
    return redirect("tier", tier)


@guarded_by(Administrator())
@require_http_methods(["GET", "HEAD", "POST"])
def tier_retire(request: HttpRequest, tier: str) -> HttpResponse:
    """Ask, then retire a tier."""
    tier_row = _get_tier(tier)
    if request.method == "POST":
        change_tier(tier=tier_row, is_active=False)
        messages.success(request, f"{tier} is no longer offered.")
        return redirect("tier", tier)
    active = Workload.objects.unfinished().filter(tier=tier_row).count()
    question = Confirmation(
        title=f"Retire {tier_row.name}?",
        effects=(
            "It can no longer be chosen; clones of jobs that ran on it need another tier.",
            f"Running and waiting work on it ({active}) continues.",
            "Nothing is deleted; you can offer it again.",
        ),
        button="Retire the tier",
        back=reverse("tier", args=[tier]),
        **_TIERS,
    )
    return show_confirmation(request, question)


def _get_tier(slug: str) -> Tier:
    tier_row = Tier.objects.filter(slug=slug).first()
    if tier_row is None:
        raise NotFound
    return tier_row


@guarded_by(Administrator())
@require_http_methods(["GET", "HEAD", "POST"])
def quotas(request: HttpRequest) -> HttpResponse:
    """List the quotas of projects and teams, and set one."""
    form = SetQuota(sent(request), initial={"group": request.GET.get("group", "")[:48]})
    done = submit_form(request, form, _set)
    if done:
        messages.success(request, "Quota set. Running work continues.")
        return redirect("quotas")
    shown = listing(request, Quota.objects.select_related("project", "team"))
    keys = [(quota.project_id, quota.team_id) for quota in shown.page.items]
    shares = {(share.project_id, share.team_id): share for share in _shares(keys)}
    rows = [(quota, shares.get(key)) for quota, key in zip(shown.page.items, keys, strict=True)]
    groups = Project.objects.live().order_by("slug").values_list("slug", flat=True)
    context = {
        "listing": shown,
        "region": "quotas",
        "layout": SETTINGS_LAYOUT,
        "rows": rows,
        "form": form,
        "groups": groups,
    }
    return render(request, "web/tiers/quotas.html", context | _QUOTAS, status=status_of(form))


def _shares(keys: Sequence[tuple[str | None, str | None]]) -> list[Share]:
    projects = [project for project, _ in keys if project]
    teams = [team for _, team in keys if team]
    shares = Share.objects.filter(project__in=projects) | Share.objects.filter(team__in=teams)
    return list(shares)


def _set(data: dict[str, Any]) -> Quota:
    return set_quota(
        group=data["group"],
        cpu_millis=data["cpus"],
        gpus=data["gpus"],
        running=data["running"],
        weight=data["weight"],
    )
