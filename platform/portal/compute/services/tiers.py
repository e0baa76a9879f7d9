"""Verbs on hardware tiers, by administrators."""

from django.db import IntegrityError, transaction

from portal.accounts import audit
from portal.compute.models import Node, Tier, TierPrice
from portal.compute.resources import GIB, Amount
from portal.core import clock
from portal.core.errors import Conflict, InvalidInput
from portal.core.text import clean_name, clean_slug

# Prices of the tiers we suggest, in nano-USD an hour; administrators set their own.
_CPU_HOUR = 40_000_000
_GIB_HOUR = 5_000_000
_GPU_HOUR = 1_200_000_000
_SMALL_MEMORY = 4 * GIB


def create_tier(
    *,
    name: str,
    slug: str,
    amount: Amount,
    nano_usd_per_hour: int,
    gpu_model: str = "",
    labels: dict[str, str] | None = None,
) -> Tier:
    """Make a tier. Raises InvalidInput for one that gives nothing, Conflict for a taken slug."""
    name, slug = clean_name(name), clean_slug(slug)
    if not amount.cpu_millis or not amount.memory_bytes:
        raise InvalidInput(
            "A tier gives at least some CPU and some memory.",
            field="resources",
            next_step="Half a CPU is 500 thousandths.",
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
            f"There is a tier {slug} already.",
            code="slug_taken",
            field="slug",
            next_step="Choose another slug.",
        ) from error
    return tier


def change_tier(
    *,
    tier: Tier,
    name: str | None = None,
    is_active: bool | None = None,
    nano_usd_per_hour: int | None = None,
) -> Tier:
    """Change what is given. A price counts from now on; what ran before keeps the old one."""
    with transaction.atomic():
        tier = Tier.objects.select_for_update().get(pk=tier.pk)
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
        before, after = audit.difference(old, _facts_of(tier))
        if after:
            tier.save(update_fields=["name", "is_active", "nano_usd_per_hour"])
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
    }


def make_default_tiers(node: Node) -> list[Tier]:
    """Make tiers that suit the first node of an installation that has none yet."""
    if Tier.objects.exists():
        return []
    try:
        return [
            create_tier(name=name, slug=slug, amount=amount, nano_usd_per_hour=_price_of(amount))
            for slug, name, amount in _suggestions(node.capacity)
        ]
    except Conflict:  # two machines were the first, and the other one was faster
        return []


def _suggestions(capacity: Amount) -> list[tuple[str, str, Amount]]:
    """Cut a machine into tiers: two small tasks fit beside each other wherever that is possible."""
    cpus = max(1, capacity.cpu_millis // 1000)
    small_cpu = 1000 if cpus <= 8 else 2000
    small_cpu = min(small_cpu, max(1, capacity.cpu_millis))
    at_once = max(2, capacity.cpu_millis // small_cpu)
    small = Amount(small_cpu, max(1, min(_SMALL_MEMORY, capacity.memory_bytes // at_once)))
    large_cpu = max(small_cpu, capacity.cpu_millis if cpus <= 4 else capacity.cpu_millis // 2)
    large_memory = max(1, capacity.memory_bytes * large_cpu // max(1, capacity.cpu_millis))
    found = [
        ("cpu-small", "CPU small", small),
        ("cpu-large", "CPU large", Amount(large_cpu, large_memory)),
    ]
    counts = {1, capacity.gpus} if capacity.gpus else set()
    for gpus in sorted(counts):
        share = Amount(
            max(1, capacity.cpu_millis * gpus // capacity.gpus),
            max(1, capacity.memory_bytes * gpus // capacity.gpus),
            gpus,
        )
        found.append((f"gpu-{gpus}", "1 GPU" if gpus == 1 else f"{gpus} GPUs", share))
    return found


def _price_of(amount: Amount) -> int:
    return (
        amount.cpu_millis * _CPU_HOUR // 1000
        + amount.memory_bytes * _GIB_HOUR // GIB
        + amount.gpus * _GPU_HOUR
    )
