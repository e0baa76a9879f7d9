"""Canary analysis: compares a revision's errors and latency with its limits. Pure, no I/O."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import sqrt

# Fewer predictions than these are too few to estimate the error rate, or the p99 latency.
ENOUGH_FOR_ERRORS = 20
ENOUGH_FOR_LATENCY = 100
# A revision is not slow while its p99 latency stays below this, whatever the other's is.
_FAST_ENOUGH_MS = 20.0
_P99 = 99.0
# Number of standard errors by which p99 has to exceed the allowed value: a pause of the machine
# delays all requests in flight, which are two or three of the first hundred predictions.
_STANDARD_ERRORS = 3.0


@dataclass(frozen=True)
class Traffic:
    """Traffic of a revision: predictions answered and failed, and a histogram of latencies.

    `counts[i]` predictions took at most `bounds_ms[i]`. The last bucket has no bound.
    """

    answered: int = 0
    failed: int = 0
    counts: tuple[int, ...] = ()

    @property
    def total(self) -> int:
        """Number of predictions that reached the model."""
        return self.answered + self.failed

    @property
    def error_percent(self) -> float:
        """Percentage of predictions that failed."""
        return 100.0 * self.failed / self.total if self.total else 0.0

    def since(self, before: "Traffic") -> "Traffic":
        """Return the traffic since `before`, an earlier reading of the same counters."""
        earlier = (*before.counts, *([0] * (len(self.counts) - len(before.counts))))
        return Traffic(
            max(0, self.answered - before.answered),
            max(0, self.failed - before.failed),
            tuple(max(0, now - then) for now, then in zip(self.counts, earlier, strict=False)),
        )


@dataclass(frozen=True)
class Rules:
    """Rollback rules of a rollout. None switches a single rule off, `is_on` all of them.

    `max_latency_factor` is relative to the previous revision, in the same time.
    """

    is_on: bool = True
    max_error_percent: float | None = 2.0
    max_p99_ms: float | None = None
    max_latency_factor: float | None = 3.0


def percentile_ms(
    counts: Sequence[int], bounds_ms: Sequence[float], percent: float
) -> float | None:
    """Return a percentile of a histogram, interpolated in its bucket, or None without counts.

    Values above every bound count as the last bound.
    """
    total = sum(counts)
    if not total:
        return None
    requested = total * percent / 100
    before = 0
    for at, sum_here in enumerate(accumulate(counts)):
        if sum_here >= requested and counts[at]:
            if at >= len(bounds_ms):
                break
            low = bounds_ms[at - 1] if at else 0.0
            return low + (bounds_ms[at] - low) * (requested - before) / counts[at]
        before = sum_here
    return float(bounds_ms[-1])


def surely_above_ms(counts: Sequence[int], bounds_ms: Sequence[float]) -> float | None:
    """Return a lower confidence bound of the 99th percentile, or None without counts.

    It is the lower end of a distribution-free confidence interval: the number of values below a
    quantile is binomial, so the order statistics around n p, some sqrt(n p (1 - p)) away, enclose
    it (David and Nagaraja, Order Statistics, 2003, section 7.1). Of 100 values that is the fourth
    slowest, of a million the 99th percentile itself.
    """
    total = sum(counts)
    if not total:
        return None
    below = _STANDARD_ERRORS * sqrt(_P99 * (100.0 - _P99) / total)
    return percentile_ms(counts, bounds_ms, max(0.0, _P99 - below))


def rollback_reason(
    new: Traffic, old: Traffic | None, rules: Rules, bounds_ms: Sequence[float]
) -> str:
    """Return the reason to roll the new revision back as a sentence, or "" if there is none.

    `old` is the traffic of the previous revision in the same time, if there is one.
    """
    if not rules.is_on:
        return ""
    return _errors(new, old, rules) or _latency(new, old, rules, bounds_ms)


def _errors(new: Traffic, old: Traffic | None, rules: Rules) -> str:
    if rules.max_error_percent is None or new.total < ENOUGH_FOR_ERRORS:
        return ""
    # Errors that the old revision has as well (a broken client, a full node) are not its fault.
    usual = old.error_percent if old is not None and old.total >= ENOUGH_FOR_ERRORS else 0.0
    if new.error_percent <= max(rules.max_error_percent, 2 * usual):
        return ""
    return (
        f"{new.failed} of {new.total} predictions failed ({new.error_percent:.1f} %); "
        f"at most {rules.max_error_percent:g} % are allowed."
    )


def _latency(new: Traffic, old: Traffic | None, rules: Rules, bounds_ms: Sequence[float]) -> str:
    if sum(new.counts) < ENOUGH_FOR_LATENCY:
        return ""
    p99 = percentile_ms(new.counts, bounds_ms, _P99)
    surely = surely_above_ms(new.counts, bounds_ms)
    if p99 is None or surely is None:
        return ""
    if rules.max_p99_ms is not None and surely > rules.max_p99_ms:
        return f"p99 latency is {p99:.0f} ms; at most {rules.max_p99_ms:g} ms are allowed."
    if rules.max_latency_factor is None or old is None or sum(old.counts) < ENOUGH_FOR_LATENCY:
        return ""
    usual = percentile_ms(old.counts, bounds_ms, _P99)
    if usual is None or surely <= max(_FAST_ENOUGH_MS, rules.max_latency_factor * usual):
        return ""
    return (
        f"p99 latency is {p99:.0f} ms, up from {usual:.0f} ms with the previous revision; at "
        f"most {rules.max_latency_factor:g} times as long is allowed."
    )
