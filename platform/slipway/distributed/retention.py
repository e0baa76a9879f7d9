"""Retention policy of checkpoints."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from slipway.distributed.errors import StrategyNotPossible


@dataclass(frozen=True, slots=True)
class Retention:
    """Keep the `last` newest, every one whose step is a multiple of `every`, and the `best`.

    The best is the one saved with the lowest (`min`) or highest (`max`) metric, such as
    `trainer.save(metric=validation_loss)`. NaN is never the best. All others are deleted.
    """

    last: int = 3
    every: int | None = None
    best: Literal["min", "max"] | None = None

    def __post_init__(self) -> None:
        if self.last < 1 or (self.every is not None and self.every < 1):
            raise StrategyNotPossible(
                f"Retention(last={self.last}, every={self.every}) would keep nothing to resume.",
                next_step="Keep at least the last one: Retention(last=1).",
            )

    def steps_to_keep(self, metrics: Mapping[int, float | None]) -> set[int]:
        """Return the steps to keep among those saved, given the metric of each."""
        kept = set(sorted(metrics)[-self.last :])
        if self.every is not None:
            kept |= {step for step in metrics if step % self.every == 0}
        measured = {s: m for s, m in metrics.items() if m is not None and m == m}
        if self.best is not None and measured:
            sign = 1 if self.best == "min" else -1
            # Among equals the newest, which was trained on more data.
            kept.add(min(measured, key=lambda step: (sign * measured[step], -step)))
        return kept
