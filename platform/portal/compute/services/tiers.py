"""Services for hardware tiers, by administrators."""

from collections.abc import Sequence

from django.db import IntegrityError, transaction

from portal.accounts import audit
from portal.compute.models import Node, Tier, TierPrice
from portal.compute.resources import GIB, Amount, count_noun
from portal.core import clock
from portal.core.errors import Conflict, InvalidInput
from portal.core.text import clean_name, clean_slug
from slipway.schemas.truncation import join_names
from slipway.schemas.workloads import DEFAULT_DISCOUNT

# Prices of the suggested tiers, in nano-USD an hour. Administrators set their own.
_CPU_HOUR = 40_000_000
_GIB_HOUR = 5_000_000
_GPU_HOUR = 1_200_000_000
_PRICE_STEP = 1_000_000
_SMALL_MEMORY = 4 * GIB
# The least that a job or a notebook server gets without a tier named, where a tier offers it.
_PROGRAM = Amount(500, GIB // 2)
_MEMORY_STEP = GIB // 16


def offered_tier(slug: str | None, *, is_replica: bool = False) -> Tier:
    """Return a tier on offer, the default if none is named. Raises InvalidInput or Conflict.

    The default is that of jobs and notebook servers, see `default_tier`, or the cheapest tier for
    a replica.
    """
    offered = Tier.objects.offered()
    if slug is not None:
        tier = offered.filter(slug=slug).first()
    else:
        tier = offered.first() if is_replica else default_tier(list(offered))
    if tier is not None:
        return tier
    if slug is None:
        raise Conflict(
            "No hardware tier is offered yet.",
            code="no_tiers",
            next_step="Ask an administrator to join a node or add a tier.",
        )
    names = join_names(list(offered.order_by("slug").values_list("slug", flat=True)), 10)
    raise InvalidInput(
        f"There is no tier {slug}.",
        code="no_such_tier",
        field="tier",
        next_step=f"Tiers: {names}." if names else "Ask an administrator to add a tier.",
    )


def default_tier(offered: Sequence[Tier]) -> Tier | None:
    """Return the tier of a job or a notebook server for which none is named, None without tiers.

    It is the first of those `offered`, cheapest first, that has room for a program of a user. A
    tier of a tenth of a CPU is made for replicas: it is the default only where all are like that.
    """
    fitting = (
        tier
        for tier in offered
        if tier.cpu_millis >= _PROGRAM.cpu_millis and tier.memory_bytes >= _PROGRAM.memory_bytes
    )
    return next(fitting, offered[0] if offered else None)


def create_tier(
    *,
    name: str,
    slug: str,
    amount: Amount,
    nano_usd_per_hour: int,
    gpu_model: str = "",
    labels: dict[str, str] | None = None,
    preemptible_discount: int = DEFAULT_DISCOUNT,
) -> Tier:
    """Create a tier. Raise InvalidInput for one without resources, Conflict for a taken slug."""
    name, slug = clean_name(name), clean_slug(slug)
    if not amount.cpu_millis or not amount.memory_bytes:
        raise InvalidInput(
            "A tier needs at least some CPU and some memory.",
            code="empty_tier",
            field="resources",
            next_step="Half a CPU is 500 millicores.",
        )
    try:
        with transaction.atomic():
            tier = Tier.objects.create(
                name=name,
                slug=slug,
                cpu_millis=amount.cpu_millis,
                memory_bytes=amount.memory_bytes,
                gpus=amount.gpus,
                gpu_model=gpu_model,
                labels=labels or {},
                nano_usd_per_hour=nano_usd_per_hour,
                preemptible_discount=preemptible_discount,
            )
            TierPrice.objects.create(tier=tier, nano_usd_per_hour=nano_usd_per_hour)
            audit.record(
                "tier.create",
                kind="tier",
                target=tier,
                label=slug,
                after={"nano_usd_per_hour": nano_usd_per_hour, "cpu_millis": amount.cpu_millis},
            )
    except IntegrityError as error:
        raise Conflict(
            f"A tier {slug} already exists.",
            code="slug_taken",
            field="slug",
            next_step="Choose another address, or edit the existing tier.",
        ) from error
    return tier


def change_tier(
    *,
    tier: Tier,
    name: str | None = None,
    is_active: bool | None = None,
    nano_usd_per_hour: int | None = None,
    preemptible_discount: int | None = None,
) -> Tier:
    """Change the attributes given. A price applies from now on and not to earlier usage.

    A discount (in percent) applies to leases that begin from now on.
    """
    with transaction.atomic():
        tier = Tier.objects.select_for_update(no_key=True).get(pk=tier.pk)
        old = _facts_of(tier)
        if name is not None:
            tier.name = clean_name(name)
        if is_active is not None:
            tier.is_active = is_active
        if nano_usd_per_hour is not None and nano_usd_per_hour != tier.nano_usd_per_hour:
            tier.nano_usd_per_hour = nano_usd_per_hour
            TierPrice.objects.create(
                tier=tier, nano_usd_per_hour=nano_usd_per_hour, effective_from=clock.now()
            )
        if preemptible_discount is not None:
            tier.preemptible_discount = preemptible_discount
        before, after = audit.difference(old, _facts_of(tier))
        if after:
            tier.save(
                update_fields=["name", "is_active", "nano_usd_per_hour", "preemptible_discount"]
            )
            audit.record(
                "tier.change",
                kind="tier",
                target=tier,
                label=tier.slug,
                before=before,
                after=after,
            )
    return tier


def _facts_of(tier: Tier) -> dict[str, str | int | bool]:
    return {
        "name": tier.name,
        "is_active": tier.is_active,
        "nano_usd_per_hour": tier.nano_usd_per_hour,
        "preemptible_discount": tier.preemptible_discount,
    }


def create_default_tiers(node: Node) -> list[Tier]:
    """Create tiers for a node: all of them for the first, those with GPUs for the first GPU.

    Tiers of administrators are not changed, and an existing slug keeps its tier.
    """
    suggested = _default_tiers(node.capacity)
    if Tier.objects.exists():
        has_gpus = Tier.objects.filter(gpus__gt=0).exists()
        suggested = [] if has_gpus else [tier for tier in suggested if tier[2].gpus]
    made = []
    for slug, name, amount in suggested:
        try:
            made.append(
                create_tier(
                    name=name, slug=slug, amount=amount, nano_usd_per_hour=_price_of(amount)
                )
            )
        except Conflict:  # another machine or an administrator created it concurrently
            continue
    return made


def _default_tiers(capacity: Amount) -> list[tuple[str, str, Amount]]:
    """Divide a machine into tiers: two small tasks fit beside each other, a large one fills it.

    There is always a `cpu-small` and a `cpu-large`. A tier equal to a smaller one is left out.
    """
    cpus = capacity.cpu_millis
    small_cpu = max(1, min(cpus // 2, max(1000, min(4000, cpus // 8 // 1000 * 1000))))
    small_memory = min(_SMALL_MEMORY, capacity.memory_bytes * small_cpu // max(1, cpus))
    medium_cpu = max(small_cpu, cpus // 2000 * 1000)
    medium_memory = capacity.memory_bytes * medium_cpu // max(1, cpus)
    sizes = [
        ("small", Amount(small_cpu, _round_memory(small_memory))),
        ("medium", Amount(medium_cpu, _round_memory(medium_memory))),
        ("large", Amount(max(1, cpus), max(1, capacity.memory_bytes))),
    ]
    suggestions = [
        (f"cpu-{size}", f"CPU {size}", amount)
        for at, (size, amount) in enumerate(sizes)
        if size == "large" or amount not in [before for _, before in sizes[:at]]
    ]
    for gpus in sorted({1, capacity.gpus}) if capacity.gpus else ():
        share = Amount(
            max(1, cpus * gpus // capacity.gpus),
            _round_memory(capacity.memory_bytes * gpus // capacity.gpus),
            gpus,
        )
        suggestions.append((f"gpu-{gpus}", count_noun(gpus, "GPU"), share))
    return suggestions


def _round_memory(memory_bytes: int) -> int:
    """Round memory down to a multiple of the step, if there is enough of it."""
    return memory_bytes // _MEMORY_STEP * _MEMORY_STEP or max(1, memory_bytes)


def _price_of(amount: Amount) -> int:
    """Return the suggested price per hour, in whole tenths of a cent."""
    exact = (
        amount.cpu_millis * _CPU_HOUR // 1000
        + amount.memory_bytes * _GIB_HOUR // GIB
        + amount.gpus * _GPU_HOUR
    )
    return max(_PRICE_STEP, round(exact / _PRICE_STEP) * _PRICE_STEP)
