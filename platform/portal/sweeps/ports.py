"""Ports of the search algorithms and of Optuna's log. `portal.sweeps.adapters` implements them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from slipway.schemas.studies import OptunaTrialState
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


class ImportanceEstimator(Protocol):
    """Estimates how much each parameter matters for the first metric."""

    def estimate(
        self, parameters: Mapping[str, ParameterSpace], trials: Sequence[PastTrial]
    ) -> Mapping[str, float]:
        """Return the share of each parameter, the largest first; together they are 1.

        `trials` are complete. Parameters that not all of them have are left out. Empty if the
        metric hardly differs.
        """


class Sampler(Protocol):
    """Suggests the values of the next trials."""

    def suggest(
        self, search: SuggestionInput, *, first: int, count: int
    ) -> Sequence[ParameterValues]:
        """Return values for `count` trials from number `first` on.

        Fewer, or none, when the algorithm has no more: a grid ends.
        """


@dataclass(frozen=True)
class LoggedEntry:
    """An entry of a storage's log. `job` is the id of the job that appended it."""

    number: int
    text: str
    job: str | None
    created_at: datetime


@dataclass(frozen=True)
class ReplayedTrial:
    """A trial after the replay. `study` is the number of its study."""

    study: int
    number: int
    state: OptunaTrialState
    values: Mapping[str, Any]
    measured: Sequence[float | None]
    job: str | None
    started_at: datetime | None
    ended_at: datetime | None


@dataclass(frozen=True)
class ReplayedStudy:
    """A study after the replay. `parameters` are those of its changed trials."""

    number: int
    name: str
    goals: Sequence[Goal]
    parameters: Mapping[str, Any]
    changed_at: datetime


@dataclass(frozen=True)
class Replayed:
    """Changed studies and trials, and the numbers of all studies that there are."""

    studies: Sequence[ReplayedStudy]
    trials: Sequence[ReplayedTrial]
    existing: Sequence[int]


class StudyReplay(Protocol):
    """The studies of one storage, built from its log."""

    @property
    def length(self) -> int:
        """Number of entries that were replayed."""

    def apply(self, entries: Sequence[LoggedEntry], *, saved: int) -> Replayed:
        """Replay the next entries. Return what those from number `saved` on have changed.

        Raises an error of Optuna for an entry that it cannot apply. The replay is of no use then.
        """
