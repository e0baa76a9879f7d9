"""Autoscaling decisions: the number of replicas an endpoint needs. Pure, no I/O."""

import math
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

# Scaling down waits until the load has stayed low for this long.
CALM = timedelta(minutes=2)


@dataclass(frozen=True)
class Bounds:
    """Bounds of the number of replicas of an endpoint, and the targets of each replica.

    `concurrency` is the target number of requests in flight in a replica, `queue_ms` the target of
    the mean time that requests wait for the forward pass.
    """

    least: int
    most: int
    concurrency: int
    queue_ms: float


@dataclass(frozen=True)
class Load:
    """Load that gateways report: requests in flight, and the mean wait of those just answered.

    `is_growing`: replicas that will take some of the load are starting, so the wait is ignored.
    """

    in_flight: int
    queue_ms: float | None = None
    is_growing: bool = False


@dataclass(frozen=True)
class ScalingDecision:
    """Desired number of replicas, and the reason as a sentence ("" for no change).

    `calm_since` is the time since when fewer would be enough, None while they would not.
    """

    desired: int
    reason: str = ""
    calm_since: datetime | None = None


@dataclass(frozen=True)
class Cap:
    """A load that needs more replicas than the endpoint may run, and the reason.

    `needs` is the highest number needed so far, or 0 while the allowed replicas are enough.
    `eased_at` is the time since when they are enough again.
    """

    needs: int = 0
    why: str = ""
    eased_at: datetime | None = None

    def sentence(self, most: int) -> str:
        """Describe the cap with the next step, or return "" while there is none.

        `most` is the number of replicas that the endpoint may run.
        """
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
    """Scale up at once to what the load needs, and down by one replica after a calm time."""
    if not bounds.least <= requested <= bounds.most:
        held = min(max(requested, bounds.least), bounds.most)
        return ScalingDecision(held, f"The endpoint is set to {_describe_bounds(bounds)}.")
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
    """Return the cap, which lasts until a calm time passes or the bound is raised.

    In between only a greater need changes it, so that short fluctuations add no events.
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


def _describe_bounds(bounds: Bounds) -> str:
    if bounds.least == bounds.most:
        return f"{bounds.least} replicas"
    return f"{bounds.least} to {bounds.most} replicas"
