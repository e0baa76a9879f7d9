"""How many replicas an endpoint needs. Arithmetic alone: no Django, no I/O."""

import math
from dataclasses import dataclass
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
    """What gateways report: requests under way, the mean wait of those just answered."""

    in_flight: int
    queue_ms: float | None = None


@dataclass(frozen=True)
class Step:
    """How many replicas are wanted from now on, and why, in a sentence ("" for no change).

    `calm_since` is since when fewer would do, None while they would not.
    """

    wanted: int
    why: str = ""
    calm_since: datetime | None = None


def step_of(
    wanted: int, load: Load, bounds: Bounds, *, calm_since: datetime | None, moment: datetime
) -> Step:
    """Decide: up at once, by what the load needs; down one step after a calm time."""
    if not bounds.least <= wanted <= bounds.most:
        held = min(max(wanted, bounds.least), bounds.most)
        return Step(held, f"The endpoint runs {_between(bounds)}.")
    needed = max(bounds.least, math.ceil(load.in_flight / bounds.concurrency))
    slow = load.queue_ms is not None and load.queue_ms > bounds.queue_ms
    if slow:
        needed = max(needed, wanted + 1)
    if needed > wanted:
        return _up(wanted, min(needed, bounds.most), load, bounds, is_slow=slow)
    if needed == wanted:
        return Step(wanted)
    since = calm_since or moment
    if moment - since < CALM:
        return Step(wanted, calm_since=since)
    return Step(
        wanted - 1,
        f"For {int(CALM.total_seconds() // 60)} minutes {wanted - 1} would have been enough "
        f"({load.in_flight} requests under way).",
    )


def _up(wanted: int, target: int, load: Load, bounds: Bounds, *, is_slow: bool) -> Step:
    if target == wanted:
        return Step(wanted)
    if is_slow:
        return Step(
            target,
            f"Requests waited {load.queue_ms:.0f} ms on average; "
            f"{bounds.queue_ms:g} ms are the target.",
        )
    return Step(
        target,
        f"{load.in_flight} requests are under way; each replica should work on "
        f"{bounds.concurrency} at once.",
    )


def _between(bounds: Bounds) -> str:
    if bounds.least == bounds.most:
        return f"{bounds.least} replicas"
    return f"{bounds.least} to {bounds.most} replicas"
