"""How many replicas an endpoint needs. Arithmetic alone: no Django, no I/O."""

import math
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

# A smaller number is wanted only after the load has stayed low for this long.
CALM = timedelta(minutes=2)


@dataclass(frozen=True)
class Bounds:
    """Between how many replicas an endpoint moves, and what each should have to do.

    `concurrency` is the number of requests in a replica that it should work on at once,
    `queue_ms` how long a request may wait for the forward pass on average.
    """

    least: int
    most: int
    concurrency: int
    queue_ms: float


@dataclass(frozen=True)
class Load:
    """What gateways report: requests under way, the mean wait of those just answered.

    `is_growing`: replicas that will take some of it are starting, so waiting says nothing yet.
    """

    in_flight: int
    queue_ms: float | None = None
    is_growing: bool = False


@dataclass(frozen=True)
class ScalingDecision:
    """How many replicas are wanted from now on, and why, in a sentence ("" for no change).

    `calm_since` is since when fewer would do, None while they would not.
    """

    wanted: int
    why: str = ""
    calm_since: datetime | None = None


@dataclass(frozen=True)
class Cap:
    """That the load needs more replicas than the endpoint may run: how many so far, and why.

    `needs` is 0 while those it may run are enough; `eased_at` is since when they would be again.
    """

    needs: int = 0
    why: str = ""
    eased_at: datetime | None = None

    def sentence(self, most: int) -> str:
        """Say so, with the next step, to an endpoint that may run `most`; "" while it does not."""
        if not self.needs:
            return ""
        return (
            f"The load needs {self.needs} replicas, but max_replicas is {most}. {self.why} "
            f"Requests queue, and some may be rejected. Raise max_replicas to {self.needs}, or "
            "target_concurrency if each replica can handle more."
        )


def step_of(
    requested: int, load: Load, bounds: Bounds, *, calm_since: datetime | None, timestamp: datetime
) -> ScalingDecision:
    """Decide: up at once, by what the load needs; down one step after a calm time."""
    if not bounds.least <= requested <= bounds.most:
        held = min(max(requested, bounds.least), bounds.most)
        return ScalingDecision(held, f"The endpoint is set to {_between(bounds)}.")
    needed = _needed(requested, load, bounds)
    target = min(needed, bounds.most)
    if target > requested:
        return ScalingDecision(target, _because(load, bounds))
    if needed >= requested:
        return ScalingDecision(requested)
    since = calm_since or timestamp
    if timestamp - since < CALM:
        return ScalingDecision(requested, calm_since=since)
    return ScalingDecision(
        requested - 1,
        f"For {int(CALM.total_seconds() // 60)} minutes {requested - 1} would have been enough "
        f"({load.in_flight} requests in flight).",
    )


def cap_of(before: Cap, requested: int, load: Load, bounds: Bounds, *, timestamp: datetime) -> Cap:
    """Say whether the load needs more than may run, until a calm time or a higher bound ends it.

    In between only a greater need changes it, so that it is told once and not with every breath.
    """
    needed = _needed(requested, load, bounds)
    if needed > bounds.most:
        if needed > before.needs:
            return Cap(needed, _because(load, bounds))
        return replace(before, eased_at=None)
    if bounds.most >= before.needs:
        return Cap()
    since = before.eased_at or timestamp
    return Cap() if timestamp - since >= CALM else replace(before, eased_at=since)


def _is_slow(load: Load, bounds: Bounds) -> bool:
    return not load.is_growing and load.queue_ms is not None and load.queue_ms > bounds.queue_ms


def _needed(requested: int, load: Load, bounds: Bounds) -> int:
    needed = max(bounds.least, math.ceil(load.in_flight / bounds.concurrency))
    return max(needed, requested + 1) if _is_slow(load, bounds) else needed


def _because(load: Load, bounds: Bounds) -> str:
    if _is_slow(load, bounds):
        return (
            f"Requests waited {load.queue_ms:.0f} ms on average; the target is "
            f"{bounds.queue_ms:g} ms."
        )
    return (
        f"{load.in_flight} requests are in flight; the target is {bounds.concurrency} for each "
        "replica."
    )


def _between(bounds: Bounds) -> str:
    if bounds.least == bounds.most:
        return f"{bounds.least} replicas"
    return f"{bounds.least} to {bounds.most} replicas"
