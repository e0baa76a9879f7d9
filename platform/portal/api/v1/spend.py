"""Cost reports, idle resources, exports, and prices of bare resources."""

from typing import Annotated

from django.http import HttpRequest, StreamingHttpResponse
from ninja import Query, Router
from pydantic import BaseModel, Field

from portal.accounts.gates import Administrator, ProjectRole, SignedIn, gated_project
from portal.accounts.principal import require_principal
from portal.api.routing import gate
from portal.compute.models import Tier
from portal.core.errors import NotFound
from portal.spend.focus import focus_download
from portal.spend.presenters import present_idle, present_overhead, present_spend, visible_scope
from portal.spend.queries import Scope as Whose
from portal.spend.services.prices import current_rates, effect_of_price, price_resource
from slipway.schemas.accounts import Role, Scope
from slipway.schemas.base import Line, PageOf
from slipway.schemas.spend import (
    MOST_NANO_USD,
    IdleOut,
    OverheadOut,
    PriceEffect,
    RateIn,
    RateOut,
    SpendOut,
)

router = Router(tags=["Spend"])
_MINE = SignedIn(Scope.WORKLOADS_READ, confined=True)
_PROJECT = ProjectRole(Role.VIEWER, Scope.WORKLOADS_READ)


class WindowQuery(BaseModel):
    """`today`, `7d`, `month` (the current one) or a month such as `2026-11`, all in UTC."""

    window: Annotated[Line, Field(max_length=10)] = "month"


class PriceQuery(BaseModel):
    """A new price to preview."""

    nano_usd_per_hour: Annotated[int, Field(ge=0, le=MOST_NANO_USD)]


@router.get("/spend", auth=gate(_MINE), response=SpendOut)
def get_spend(request: HttpRequest, query: Query[WindowQuery]) -> SpendOut:
    """Get the cost of all your projects, live."""
    return present_spend(visible_scope(require_principal(request)), query.window)


@router.get("/spend/installation", auth=gate(Administrator()), response=SpendOut)
def get_installation_spend(request: HttpRequest, query: Query[WindowQuery]) -> SpendOut:
    """Get the cost of the whole installation, without single runs."""
    return present_spend(Whose(), query.window, with_runs=False)


@router.get("/spend/idle", auth=gate(_MINE), response=PageOf[IdleOut])
def list_idle_resources(request: HttpRequest, query: Query[WindowQuery]) -> PageOf[IdleOut]:
    """List idle resources by cause. Only administrators see nodes."""
    return PageOf[IdleOut](items=present_idle(require_principal(request), query.window))


@router.get("/spend/overhead", auth=gate(Administrator()), response=OverheadOut)
def get_machine_overhead(request: HttpRequest, query: Query[WindowQuery]) -> OverheadOut:
    """Get the cost of the machines of node groups beyond the work on them, which nobody pays."""
    return present_overhead(query.window)


@router.get("/spend/export", auth=gate(_MINE), response=None)
def export_spend(request: HttpRequest, query: Query[WindowQuery]) -> StreamingHttpResponse:
    """Download the cost of all your projects as a CSV with FOCUS columns."""
    return focus_download(visible_scope(require_principal(request)), query.window)


@router.get("/projects/{project}/spend", auth=gate(_PROJECT), response=SpendOut)
def get_project_spend(request: HttpRequest, project: str, query: Query[WindowQuery]) -> SpendOut:
    """Get the cost of one project, live."""
    return present_spend(Whose(projects=(gated_project(request).pk,)), query.window)


@router.get("/projects/{project}/spend/export", auth=gate(_PROJECT), response=None)
def export_project_spend(
    request: HttpRequest, project: str, query: Query[WindowQuery]
) -> StreamingHttpResponse:
    """Download the cost of one project as a CSV with FOCUS columns."""
    return focus_download(Whose(projects=(gated_project(request).pk,)), query.window)


@router.get("/spend/rates", auth=gate(_MINE), response=PageOf[RateOut])
def list_resource_rates(request: HttpRequest) -> PageOf[RateOut]:
    """List the prices of bare resources, which apply to idle capacity and storage."""
    return PageOf[RateOut](items=current_rates())


@router.put("/spend/rates/{resource}", auth=gate(Administrator()), response=RateOut)
def set_resource_rate(request: HttpRequest, resource: str, payload: RateIn) -> RateOut:
    """Set the price of a bare resource from now on."""
    return price_resource(resource=resource, nano_usd_per_hour=payload.nano_usd_per_hour)


@router.get("/tiers/{tier}/price-effect", auth=gate(Administrator()), response=PriceEffect)
def preview_price_change(request: HttpRequest, tier: str, query: Query[PriceQuery]) -> PriceEffect:
    """Preview the effect of a new price of a tier."""
    tier_row = Tier.objects.filter(slug=tier).first()
    if tier_row is None:
        raise NotFound
    return effect_of_price(tier=tier_row, nano_usd_per_hour=query.nano_usd_per_hour)
