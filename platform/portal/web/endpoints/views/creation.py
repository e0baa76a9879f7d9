"""Creating an endpoint: the form, its cost, and whether there is capacity."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from portal.accounts.gates import ProjectRole, gated_project
from portal.accounts.models import Project
from portal.accounts.principal import require_principal
from portal.compute.models import Pool, Tier
from portal.core.policy import guarded_by
from portal.endpoints.services.endpoints import create_endpoint
from portal.registry.catalog import list_models
from portal.web.base.environments import MODEL_PACKAGES, offer_environments
from portal.web.base.form_submission import sent, status_of, submit_form
from portal.web.base.hardware import offer_tiers
from portal.web.base.list_query import search_parameter
from portal.web.base.pools import offer_pools
from portal.web.endpoints.forms import NewEndpoint
from portal.web.endpoints.presenters import version_choices
from portal.web.endpoints.views.pages import WHERE
from portal.workloads.placement import Capacity
from portal.workloads.scheduling import free_task_slots, read_sites
from slipway.schemas.accounts import Role, Scope

_RUN = ProjectRole(Role.CONTRIBUTOR, Scope.WORKLOADS_WRITE)
_HOURS_A_MONTH = 730
_MOST_REPLICAS = 1000


@guarded_by(_RUN)
@require_http_methods(["GET", "HEAD", "POST"])
def project_endpoint_new(request: HttpRequest, project: str) -> HttpResponse:
    """Show the form of a new endpoint, quote it, create it. The URL may name the model."""
    project_row, by = gated_project(request), require_principal(request).user
    offered = _active_tiers()
    form = NewEndpoint(sent(request), initial=_initial(request, project_row, offered))
    asks_price = request.POST.get("do") == "quote"
    done = None
    if not asks_price:
        done = submit_form(
            request, form, lambda _: create_endpoint(project=project_row, by=by, spec=form.payload)
        )
    if done:
        made = done.result
        messages.success(request, f"Creating {made.name}.")
        return redirect("project_endpoint", project_row.slug, made.name)
    offer_tiers(form, project_row, offered)
    offer_pools(form, project_row, by)
    offer_environments(form, project_row, automatic=MODEL_PACKAGES, installation=False)
    context = {
        "form": form,
        "models": [item.name for item in list_models(project_row.pk, limit=100).items],
        "versions": version_choices(project_row, str(form["model"].value() or "")),
        **_priced(project_row, form),
    }
    status = 200 if asks_price else status_of(form)
    return render(request, "web/endpoints/new.html", context | WHERE, status=status)


def _active_tiers() -> list[Tier]:
    return list(Tier.objects.offered())


def _initial(request: HttpRequest, project: Project, offered: list[Tier]) -> dict[str, Any]:
    model = search_parameter(request, "model")
    return {
        "model": model,
        "name": model.lower().replace("_", "-").replace(".", "-")[:48],
        "version": search_parameter(request, "version"),
        "tier": offered[0].slug if offered else "",
        "min_replicas": 1,
        "max_replicas": 1,
        "fallback": "standby",
    }


@guarded_by(_RUN)
@require_POST
def project_endpoint_quote(request: HttpRequest, project: str) -> HttpResponse:
    """Quote the endpoint in the form, and whether its first replica would wait."""
    form = NewEndpoint(request.POST)
    return render(
        request, "web/endpoints/quote.html", {"form": form, **_priced(gated_project(request), form)}
    )


def _priced(project: Project, form: NewEndpoint) -> dict[str, Any]:
    """Price what can be read of the form so far, whatever else is still wrong in it."""
    slug = str(form["tier"].value() or "")
    tier = Tier.objects.offered().filter(slug=slug[:48]).first()
    least, most = _count(form, "min_replicas"), _count(form, "max_replicas")
    if tier is None or least is None:
        return {"quote": None}
    most = max(least, most or least)
    chosen = str(form["pool"].value() or "")[:48]
    pool = Pool.objects.usable_by(project).filter(name=chosen).first() if chosen else None
    price = tier.price(pool=pool)
    return {
        "quote": {
            "tier": tier,
            "least": least,
            "most": most,
            "least_an_hour": price * least,
            "most_an_hour": price * most,
            "least_a_month": price * least * _HOURS_A_MONTH,
            "most_a_month": price * most * _HOURS_A_MONTH,
            "pool": pool,
            "free": free_task_slots(Capacity(read_sites()), project, tier),
        }
    }


def _count(form: NewEndpoint, name: str) -> int | None:
    text = str(form[name].value() or "")
    if not (text.isascii() and text.isdecimal() and len(text) < 6):
        return None
    return min(max(1, int(text)), _MOST_REPLICAS)
