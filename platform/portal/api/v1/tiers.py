"""Hardware tiers, visible to everybody and managed by administrators."""

from django.http import HttpRequest
from ninja import Router, Status

from portal.accounts.gates import Administrator, SignedIn
from portal.api.routing import gate
from portal.api.v1.serializers import PageParameters, page_of
from portal.api.v1.workload_serializers import price_out, tier_out
from portal.compute.models import Tier, TierPrice
from portal.compute.resources import Amount
from portal.compute.services import tiers
from portal.compute.services.tiers import change_tier
from portal.core.errors import NotFound
from portal.core.pagination import paginate
from portal.workloads.placement import Capacity
from portal.workloads.scheduling import read_sites
from slipway.schemas.accounts import Scope
from slipway.schemas.base import PageOf
from slipway.schemas.workloads import TierChange, TierIn, TierOut, TierPriceOut

router = Router(tags=["Tiers"])
_SEE = SignedIn(Scope.WORKLOADS_READ, confined=True)


def _tier(slug: str) -> Tier:
    tier = Tier.objects.filter(slug=slug).first()
    if tier is None:
        raise NotFound
    return tier


@router.get("/tiers", auth=gate(_SEE), response=PageOf[TierOut])
def list_tiers(request: HttpRequest, page: PageParameters) -> PageOf[TierOut]:
    """List the available tiers, with how many tasks of each fit right now."""
    room = Capacity(read_sites())
    tiers_page = paginate(Tier.objects.filter(is_active=True), cursor=page.cursor, limit=page.limit)
    return page_of(tiers_page, lambda tier: tier_out(tier, room.count_of(tier.need)))


@router.post("/tiers", auth=gate(Administrator()), response={201: TierOut})
def create_tier(request: HttpRequest, payload: TierIn) -> Status[TierOut]:
    """Create a tier."""
    resources = payload.resources
    made = tiers.create_tier(
        name=payload.name,
        slug=payload.slug,
        amount=Amount(resources.cpu_millis, resources.memory_bytes, resources.gpus),
        gpu_model=payload.gpu_model,
        labels=dict(payload.labels),
        nano_usd_per_hour=payload.nano_usd_per_hour,
        preemptible_discount=payload.preemptible_discount,
    )
    return Status(201, tier_out(made))


@router.get("/tiers/{tier}", auth=gate(_SEE), response=TierOut)
def get_tier(request: HttpRequest, tier: str) -> TierOut:
    """Get a tier, available or retired."""
    tier_row = _tier(tier)
    return tier_out(tier_row, Capacity(read_sites()).count_of(tier_row.need))


@router.patch("/tiers/{tier}", auth=gate(Administrator()), response=TierOut)
def update_tier(request: HttpRequest, tier: str, payload: TierChange) -> TierOut:
    """Rename, retire or price a tier. A new price applies from now on."""
    changed = change_tier(
        tier=_tier(tier),
        name=payload.name,
        is_active=payload.is_active,
        nano_usd_per_hour=payload.nano_usd_per_hour,
        preemptible_discount=payload.preemptible_discount,
    )
    return tier_out(changed)


@router.get("/tiers/{tier}/prices", auth=gate(_SEE), response=PageOf[TierPriceOut])
def list_tier_prices(request: HttpRequest, tier: str, page: PageParameters) -> PageOf[TierPriceOut]:
    """List the prices of a tier, newest first."""
    tier_prices = TierPrice.objects.filter(tier=_tier(tier))
    return page_of(paginate(tier_prices, cursor=page.cursor, limit=page.limit), price_out)
