"""Port of the search algorithms. `portal.sweeps.adapters` implements it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from slipway.schemas.sweeps import Goal, ParameterSpace, ParameterValues


@dataclass(frozen=True)
class PastTrial:
    """A trial that was started before. `value` is None while it runs, and if it has failed.

    One that was stopped early has `pruned_after`, the number of values it had logged. `violations`
    has a number for each constraint, more than 0 if it is violated.
    """

    number: int
    values: ParameterValues
    value: float | None
    is_running: bool
    pruned_after: int | None = None
    other_values: Sequence[float] = ()
    violations: Sequence[float] = ()

    @property
    def violation(self) -> float:
        """Distance of the trial from being feasible: 0 if it is."""
        return sum(max(0.0, each) for each in self.violations)


@dataclass(frozen=True)
class SuggestionInput:
    """Input of a suggestion, and all of it, so that it can be repeated after a crash.

    `history` are the trials that matter, in the order of numbers. For CMA-ES they are the complete
    ones, in the order of their ends.
    """

    algorithm: str
    parameters: Mapping[str, ParameterSpace]
    goal: Goal
    seed: int
    history: Sequence[PastTrial]
    other_goals: Sequence[Goal] = ()


class Sampler(Protocol):
    """Suggests the values of the next trials."""

    def suggest(
        self, search: SuggestionInput, *, first: int, count: int
    ) -> Sequence[ParameterValues]:
        """Return values for `count` trials from number `first` on.

        Fewer, or none, when the algorithm has no more: a grid ends.
        """
