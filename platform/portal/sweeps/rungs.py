"""Comparisons of early stopping: when they are, and who goes on. No Django, no I/O.

A *rung* is a number of values of the metric after which a trial is compared with the others that
have reached it. Rung k of ASHA is after `min_values * eta ** k` values. Hyperband has several
brackets, which begin with later rungs; trials of one bracket are compared with each other. The
median rule has a rung after each `min_values` values.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from slipway.schemas.sweeps import Goal

_BRACKETS = 3
# Beyond this many values, and this many rungs of the median rule, nothing is compared any more.
_MOST_VALUES = 1_000_000
_MOST_RUNGS = 200
# The median of fewer trials says too little.
_MEDIAN_OF = 3


@dataclass(frozen=True)
class RungRule:
    """The settings of early stopping of a sweep."""

    scheduler: str
    min_values: int
    eta: int
    goal: Goal

    @property
    def promotes(self) -> bool:
        """True if trials that were stopped may run again."""
        return self.scheduler in ("asha", "hyperband")

    def bracket_of(self, number: int) -> int:
        """Return the bracket of a trial. Each has 1 / `eta` as many trials as the one before."""
        if self.scheduler != "hyperband":
            return 0
        sizes = [self.eta ** (_BRACKETS - 1 - bracket) for bracket in range(_BRACKETS)]
        place = number % sum(sizes)
        bracket = 0
        while place >= sizes[bracket]:
            place -= sizes[bracket]
            bracket += 1
        return bracket

    def count_at(self, bracket: int, rung: int) -> int | None:
        """Return the number of values of a rung, None if there is no such rung."""
        if self.scheduler == "none" or rung >= _MOST_RUNGS:
            return None
        if self.scheduler == "median":
            count = self.min_values * (rung + 1)
        else:
            count = self.min_values * self.eta ** (bracket + rung)
        return count if count <= _MOST_VALUES else None

    def decide(self, value: float | None, others: Sequence[float | None]) -> str:
        """Return why a trial that reaches a rung is to stop, or "" if it goes on.

        `others` are the values of those that have reached it before. None is a value that is not
        finite.
        """
        if value is None or not math.isfinite(value):
            return "is not finite"
        known = [other for other in others if other is not None]
        if self.scheduler == "median":
            if len(known) < _MEDIAN_OF or not self._is_better(median(known), value):
                return ""
            return f"is worse than {median(known):.6g}, the median of {len(known)} other trials"
        rank = 1 + sum(self._is_better(other, value) for other in known)
        best = max(1, (len(others) + 1) // self.eta)
        if rank <= best:
            return ""
        among = "the best" if best == 1 else f"among the best {best}"
        return f"is not {among} of {len(others) + 1} trials"

    def promotable(self, rung: Sequence["Reached"]) -> list["Reached"]:
        """Return the stopped trials of a rung that are among its best by now, the best first."""
        if not self.promotes:
            return []
        known = [trial for trial in rung if trial.value is not None]
        sign = -1 if self.goal == "max" else 1
        known.sort(key=lambda trial: (sign * (trial.value or 0.0), trial.number))
        return [trial for trial in known[: len(rung) // self.eta] if trial.is_cut]

    def _is_better(self, first: float, second: float) -> bool:
        return first > second if self.goal == "max" else first < second


@dataclass(frozen=True)
class Reached:
    """A trial that has reached a rung, its value there, and whether it is stopped there."""

    number: int
    value: float | None
    is_cut: bool
