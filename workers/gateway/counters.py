"""Counters of requests and predictions since the process started."""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import Final

from slipway.schemas.serving import (
    LATENCY_BOUNDS_MS,
    EndpointCounters,
    Histogram,
    RevisionCounters,
)

_BOUNDS_US: Final = tuple(bound * 1000 for bound in LATENCY_BOUNDS_MS)


@dataclass(slots=True)
class RevisionCount:
    """Counts of one revision. The names are those of RevisionCounters."""

    answered: int = 0
    refused: int = 0
    failed: int = 0
    retried: int = 0
    fallback: int = 0
    captured: int = 0
    uncaptured: int = 0
    mirrored: int = 0
    unmirrored: int = 0
    differed: int = 0
    shadow_failed: int = 0
    in_flight: int = 0
    queue_us: int = 0
    latency: list[int] = field(default_factory=lambda: [0] * (len(_BOUNDS_US) + 1))
    latency_us: int = 0

    def answer(self, took_us: list[int], queue_us: int) -> None:
        """Count the responses of a batch, with their latencies and the sum of replica waits."""
        self.answered += len(took_us)
        self.queue_us += queue_us
        self.observe(took_us)

    def capture(self, count: int, *, is_kept: bool) -> None:
        """Count predictions that were to be captured."""
        if is_kept:
            self.captured += count
        else:
            self.uncaptured += count

    def observe(self, took_us: list[int]) -> None:
        """Count the latency of each response."""
        self.latency_us += sum(took_us)
        # By buckets, not one by one: responses of one batch have similar latencies.
        left = sorted(took_us)
        place = bisect_left(_BOUNDS_US, left[0]) if left else 0
        at = 0
        while at < len(left):
            end = bisect_right(left, _BOUNDS_US[place]) if place < len(_BOUNDS_US) else len(left)
            self.latency[place] += end - at
            at, place = end, place + 1

    def to_report(self, revision_id: str) -> RevisionCounters:
        """Return the counts in the schema of the report."""
        return RevisionCounters(
            revision_id=revision_id,
            answered=self.answered,
            refused=self.refused,
            failed=self.failed,
            retried=self.retried,
            fallback=self.fallback,
            captured=self.captured,
            uncaptured=self.uncaptured,
            mirrored=self.mirrored,
            unmirrored=self.unmirrored,
            differed=self.differed,
            shadow_failed=self.shadow_failed,
            in_flight=self.in_flight,
            queue_ms_sum=self.queue_us / 1000,
            latency=Histogram(counts=list(self.latency), sum_ms=self.latency_us / 1000),
        )


@dataclass(slots=True)
class EndpointCount:
    """Counts of requests that reached no revision. The names are those of EndpointCounters."""

    unauthorized: int = 0
    rate_limited: int = 0
    too_large: int = 0
    shed: int = 0
    unavailable: int = 0
    timed_out: int = 0

    def to_report(self, endpoint_id: str, revisions: list[RevisionCounters]) -> EndpointCounters:
        """Return the counts in the schema of the report."""
        return EndpointCounters(
            endpoint_id=endpoint_id,
            unauthorized=self.unauthorized,
            rate_limited=self.rate_limited,
            too_large=self.too_large,
            shed=self.shed,
            unavailable=self.unavailable,
            timed_out=self.timed_out,
            revisions=revisions,
        )
