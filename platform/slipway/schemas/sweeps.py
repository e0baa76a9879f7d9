"""Wire schemas of sweeps: searches for the parameters with which a script does best.

Under `/api/v1`:

GET    projects/{project}/sweeps                  PageOf[SweepOut]
POST   projects/{project}/sweeps                  SweepIn → SweepOut (201)
POST   projects/{project}/sweeps/quote            SweepIn → SweepQuote: nothing is started
GET    projects/{project}/sweeps/{sweep}          SweepOut
GET    projects/{project}/sweeps/{sweep}/trials   PageOf[TrialOut]
GET    projects/{project}/sweeps/{sweep}/front    FrontOut: with several metrics, the best trials
POST   projects/{project}/sweeps/{sweep}/pause    → SweepOut: no further trials until it is resumed
POST   projects/{project}/sweeps/{sweep}/resume   → SweepOut
POST   projects/{project}/sweeps/{sweep}/extend   SweepExtension → SweepOut: more trials
POST   projects/{project}/sweeps/{sweep}/stop     → SweepOut: stops its jobs, for good
GET    projects/{project}/sweeps/{sweep}/repeats       RepeatsOut: trials with other seeds
POST   projects/{project}/sweeps/{sweep}/repeats       RepeatIn → RepeatsOut (201)
POST   projects/{project}/sweeps/{sweep}/repeats/quote RepeatIn → SweepQuote: nothing is started
"""

import math
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from itertools import product
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from slipway.schemas.base import AnswerSchema, Line, Name, Number, RequestSchema, Truth, Whole
from slipway.schemas.training import Argument, JobIn, ParameterName, Quote

MAX_TRIALS = 10_000
MAX_PARALLEL = 100
MAX_MIN_VALUES = 10_000
MAX_ETA = 10
MAX_METRICS = 4
MAX_CONSTRAINTS = 10
MAX_ON_FRONT = 200
MAX_SOURCES = 10
MAX_SEEDS = 20
# From fewer complete trials the importance of parameters is not estimated.
LEAST_FOR_IMPORTANCE = 10
# Their suggestions depend on the number of a trial alone.
LEARN_NOTHING = ("random", "grid", "qmc")
_MAX_CHOICES = 100
# Finite, and small enough that differences of two of them are finite.
_LARGEST = 1e300
_LARGEST_WHOLE = 2**53
_LEAST_FOR_CMA = 2

Algorithm = Literal["random", "grid", "tpe", "tpe-multivariate", "qmc", "cma-es", "gp", "nsga-ii"]
Scheduler = Literal["none", "median", "asha", "hyperband"]
Goal = Literal["min", "max"]
# Values of a trial's parameters. A parameter whose condition does not hold has none.
ParameterValues = dict[str, float | int | str]
MetricName = Annotated[Line, Field(min_length=1, max_length=250)]
Seed = Annotated[Whole, Field(ge=0, le=2**31 - 1)]
WarmStartSource = Annotated[Line, Field(min_length=1, max_length=1000)]


class SweepState(StrEnum):
    """State of a sweep."""

    RUNNING = "running"
    PAUSED = "paused"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"

    @property
    def has_ended(self) -> bool:
        """Return True if it starts no more trials, unless it is extended."""
        return self not in (SweepState.RUNNING, SweepState.PAUSED)


class TrialState(StrEnum):
    """State of a trial. `complete` means that its job succeeded and logged the metric.

    `pruned` trials were stopped early. Those of ASHA and Hyperband may run again.
    """

    RUNNING = "running"
    COMPLETE = "complete"
    FAILED = "failed"
    STOPPED = "stopped"
    PRUNED = "pruned"


class ParameterSpace(RequestSchema):
    """Values that a parameter may take.

    `float` and `int` range from `low` to `high`, both included, on a logarithmic scale if `log`, in
    multiples of `step` from `low` on if there is one. `choice` is one of `choices`. `when` names
    other parameters with `choices`, and the values of them for which this one exists.
    """

    type: Literal["float", "int", "choice"]
    low: Number | None = Field(default=None, ge=-_LARGEST, le=_LARGEST)
    high: Number | None = Field(default=None, ge=-_LARGEST, le=_LARGEST)
    step: Number | None = Field(default=None, gt=0, le=_LARGEST)
    log: Truth = False
    choices: list[Argument] = Field(default=[], max_length=_MAX_CHOICES)
    when: dict[ParameterName, list[Argument]] = Field(default={}, max_length=10)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.type == "choice":
            self._check_choices()
        else:
            self._check_range()
        return self

    def _check_choices(self) -> None:
        if not self.choices:
            raise ValueError("a choice needs values: name at least one in choices")
        if len(set(self.choices)) != len(self.choices):
            raise ValueError("choices contains a value twice")
        if self.low is not None or self.high is not None or self.step is not None or self.log:
            raise ValueError("low, high, step and log belong to float and int, not to choice")

    def _check_range(self) -> None:
        if self.choices:
            raise ValueError(f"choices belongs to choice, not to {self.type}")
        if self.low is None or self.high is None:
            raise ValueError("a range needs low and high")
        if self.low > self.high:
            raise ValueError(f"low is {self.low:g}, which is more than high, {self.high:g}")
        if self.log and self.low <= 0:
            raise ValueError(f"a logarithmic range begins above 0; low is {self.low:g}")
        if self.log and self.step is not None:
            raise ValueError("a logarithmic range has no step")
        if self.type == "int":
            for name, bound in (("low", self.low), ("high", self.high), ("step", self.step or 1)):
                if bound != int(bound) or abs(bound) > _LARGEST_WHOLE:
                    raise ValueError(f"{name} of an int must be a whole number, not {bound:g}")

    def values(self) -> list[float | int | str] | None:
        """Return all values in order, None if they are not countable or more than 10,000."""
        if self.type == "choice":
            return [*self.choices]
        low, high = self.low or 0, self.high or 0
        if low == high:
            return [int(low) if self.type == "int" else low]
        if self.type == "float" and self.step is None:
            return None
        step = self.step or 1
        count = math.floor((high - low) / step + 1e-9) + 1
        if count > MAX_TRIALS:
            return None
        if self.type == "int":
            return [int(low) + index * int(step) for index in range(count)]
        return [low + index * step for index in range(count)]


class Metric(RequestSchema):
    """The metric to optimize, as the script logs it with `mlflow`. Its last value counts."""

    name: MetricName
    goal: Goal = "max"


class Constraint(RequestSchema):
    """A bound of a metric that the script logs. A trial beyond it is infeasible, and never best."""

    metric: MetricName
    op: Literal["<=", ">="]
    bound: Number = Field(ge=-_LARGEST, le=_LARGEST)

    def violation(self, value: float) -> float:
        """Return how far a value is beyond the bound: 0 or less if it is not."""
        return value - self.bound if self.op == "<=" else self.bound - value

    def __str__(self) -> str:
        return f"{self.metric} {self.op} {self.bound:.6g}"


class SweepIn(RequestSchema):
    """A sweep to start: jobs like `job`, each with other values of `parameters`.

    `job.params` are passed to each trial as they are. At most `parallel` trials run at once. A
    trial whose job fails is submitted again up to `retries` times, and counts once. `seed` makes
    the suggestions repeatable. `grid` tries all combinations, and ends after the last.

    `scheduler` stops trials early, by the values of the metric that they have logged so far. `asha`
    compares them after `min_values` values, `eta` times as many, and so on, and lets the best of
    `eta` go on; `hyperband` does so with several first comparisons. `median` compares after each
    `min_values` values.

    `other_metrics` are optimized at the same time as `metric`. There is no best trial then, but a
    Pareto front. Each of `constraints` must hold for a trial to be the best.

    `warm_start` names what the algorithm learns from before the first trial: ids of sweeps of the
    project, and filters of its runs such as `metrics.accuracy > 0.5`; the newest 200 of them. Runs
    with a parameter outside its range, or without a metric, are left out.
    """

    name: Name | None = None
    job: JobIn
    parameters: dict[ParameterName, ParameterSpace] = Field(min_length=1, max_length=50)
    metric: Metric
    other_metrics: list[Metric] = Field(default=[], max_length=MAX_METRICS - 1)
    constraints: list[Constraint] = Field(default=[], max_length=MAX_CONSTRAINTS)
    warm_start: list[WarmStartSource] = Field(default=[], max_length=MAX_SOURCES)
    algorithm: Algorithm = "tpe"
    trials: Whole = Field(default=20, ge=1, le=MAX_TRIALS)
    parallel: Whole = Field(default=2, ge=1, le=MAX_PARALLEL)
    retries: Whole = Field(default=0, ge=0, le=10)
    seed: Whole = Field(default=0, ge=0, le=2**31 - 1)
    scheduler: Scheduler = "none"
    min_values: Whole = Field(default=1, ge=1, le=MAX_MIN_VALUES)
    eta: Whole = Field(default=3, ge=2, le=MAX_ETA)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        both = sorted(set(self.parameters) & set(self.job.params))
        if both:
            raise ValueError(f"{both[0]} is in parameters and in job.params; leave out one of them")
        for name, space in self.parameters.items():
            self._check_conditions(name, space)
        ordered(self.parameters)
        self._check_metrics()
        if self.warm_start and self.algorithm in LEARN_NOTHING:
            raise ValueError(
                f"{self.algorithm} learns nothing from earlier trials; leave out warm_start, or "
                "use another algorithm such as tpe"
            )
        if self.algorithm == "grid":
            for name, space in self.parameters.items():
                if space.values() is None:
                    raise ValueError(
                        f"grid needs countable values: give {name} a step or choices, "
                        f"or choose another algorithm"
                    )
        if self.algorithm == "cma-es" and len(numeric_names(self.parameters)) < _LEAST_FOR_CMA:
            raise ValueError(
                "cma-es needs at least two parameters with a range of numbers and no condition; "
                "choose another algorithm, such as tpe"
            )
        return self

    def _check_metrics(self) -> None:
        names = [self.metric.name, *(metric.name for metric in self.other_metrics)]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise ValueError(f"{twice[0]} is named twice as a metric; leave out one of them")
        if self.other_metrics and self.scheduler != "none":
            raise ValueError(
                "early stopping compares trials by one metric, and this sweep has several; "
                "use the scheduler none, or make the others constraints"
            )
        if self.other_metrics and self.algorithm == "cma-es":
            raise ValueError(
                "cma-es optimizes one metric, and this sweep has several; use nsga-ii or "
                "tpe-multivariate"
            )

    def _check_conditions(self, name: str, space: ParameterSpace) -> None:
        for other, values in space.when.items():
            condition = self.parameters.get(other)
            if condition is None or condition.type != "choice":
                raise ValueError(f"{name} depends on {other}, which is no parameter with choices")
            unknown = [value for value in values if value not in condition.choices]
            if unknown or not values:
                raise ValueError(
                    f"{name} depends on a value of {other} that it cannot take: "
                    f"{unknown[0] if unknown else 'none is named'}"
                )


class SweepExtension(RequestSchema):
    """More trials of a sweep. `trials` is the new total."""

    trials: Whole = Field(ge=1, le=MAX_TRIALS)


class RepeatIn(RequestSchema):
    """Jobs with the parameters of one trial and other seeds, to see how far its value is luck.

    `trial` is the number of a complete trial, the best one without it. The script reads the seed as
    `parameter`. Without `seeds` they are the first three numbers not used yet.
    """

    trial: Whole | None = Field(default=None, ge=0, le=MAX_TRIALS)
    parameter: ParameterName = "seed"
    seeds: list[Seed] = Field(default=[], max_length=MAX_SEEDS)

    @model_validator(mode="after")
    def _different(self) -> Self:
        if len(set(self.seeds)) != len(self.seeds):
            raise ValueError("seeds contains a number twice")
        return self


class SweepQuote(AnswerSchema):
    """Cost of a sweep before it starts. `job` is the quote of one trial.

    `expected_nano_usd` comes from earlier jobs of this name, and is null without any.
    `warm_start_note` says from how many earlier trials it learns, and what is left out.
    """

    job: Quote
    trials: int
    parallel: int
    nano_usd_per_hour: int
    expected_nano_usd: int | None = None
    warm_start_note: str = ""


class BestTrial(AnswerSchema):
    """The best trial so far."""

    number: int
    value: float
    parameters: ParameterValues
    job: str


class SweepOut(AnswerSchema):
    """A sweep. `trials` is how many it may start, and the counts are of those it has started.

    `infeasible` of the complete trials violate a constraint. `best` is null with several metrics;
    `GET …/front` has the best trials then.

    `cost_nano_usd` is the cost of its jobs so far, `expected_nano_usd` and `expected_end` the
    totals, estimated from the trials that have ended. `saved_nano_usd` is how much less the pruned
    trials have cost than as many complete ones, null while there are none of either. `explanation`
    says why it is in its state.

    `importance` has the share of each parameter in the differences of `metric` (fANOVA), the
    largest first, estimated from the first `importance_of` complete trials; empty below 10.
    """

    id: str
    project: str
    name: str
    state: SweepState
    explanation: str
    next_step: str | None = None
    algorithm: Algorithm
    metric: Metric
    other_metrics: list[Metric]
    constraints: list[Constraint]
    warm_start: list[str]
    warm_start_note: str
    parameters: dict[str, ParameterSpace]
    script: str
    tier: str
    trials: int
    parallel: int
    retries: int
    seed: int
    scheduler: Scheduler
    min_values: int
    eta: int
    started: int
    running: int
    complete: int
    failed: int
    stopped: int
    pruned: int
    infeasible: int
    best: BestTrial | None = None
    cost_nano_usd: int
    expected_nano_usd: int | None = None
    expected_end: datetime | None = None
    saved_nano_usd: int | None = None
    importance: dict[str, float]
    importance_of: int
    created_by: str
    created_at: datetime
    ended_at: datetime | None = None


class TrialOut(AnswerSchema):
    """A trial: one set of values. `job` is its newest job, `attempt` counts its jobs.

    `value` is the last value of the metric, null until the trial is complete or pruned.
    `other_values` are those of the other metrics, `constraint_values` those of the metrics of the
    constraints, both in their order and empty until it is complete. It is feasible unless a
    constraint is violated.
    """

    number: int
    state: TrialState
    parameters: ParameterValues
    value: float | None = None
    other_values: list[float] = []
    constraint_values: list[float] = []
    is_feasible: bool = True
    explanation: str = ""
    job: str
    attempt: int
    created_at: datetime
    ended_at: datetime | None = None


class FrontOut(AnswerSchema):
    """The Pareto front: feasible trials than which no other is as good in all metrics and better.

    The best by the first metric come first. It is of the newest 2,000 complete trials, and has 200
    trials at most; `count` says how many it has without that limit.
    """

    metrics: list[Metric]
    count: int
    trials: list[TrialOut]


class RepeatOut(AnswerSchema):
    """A job with the parameters of a trial and another seed. `value` is null until it succeeded."""

    seed: int
    parameter: str
    state: str
    value: float | None = None
    job: str


class RepeatGroup(AnswerSchema):
    """The repeats of one trial. `mean` is that of their values, `deviation` from two values on.

    The deviation is the standard deviation of a sample. `value` is that of the trial itself, which
    counts in neither.
    """

    trial: int
    parameters: ParameterValues
    value: float
    mean: float | None = None
    deviation: float | None = None
    repeats: list[RepeatOut]


class RepeatsOut(AnswerSchema):
    """The repeats of a sweep by their trials, of the newest 200."""

    groups: list[RepeatGroup]


def ordered(parameters: Mapping[str, ParameterSpace]) -> list[str]:
    """Return the names so that each comes after those it depends on. Raises ValueError."""
    names: list[str] = []
    left = sorted(parameters)
    while left:
        ready = [name for name in left if set(parameters[name].when) <= set(names)]
        if not ready:
            raise ValueError(f"{left[0]} depends on itself")
        names += ready
        left = [name for name in left if name not in ready]
    return names


def numeric_names(parameters: Mapping[str, ParameterSpace]) -> list[str]:
    """Return the names of parameters with a range of numbers that exist in every trial."""
    return [
        name
        for name, space in sorted(parameters.items())
        if space.type != "choice" and not space.when and space.low != space.high
    ]


def applies(space: ParameterSpace, values: Mapping[str, float | int | str]) -> bool:
    """Return whether a parameter exists beside the `values` of those it depends on."""
    return all(values.get(other) in allowed for other, allowed in space.when.items())


def grid(parameters: Mapping[str, ParameterSpace]) -> list[ParameterValues]:
    """Return the combinations of countable parameters in order, 10,001 at most."""
    combinations: list[ParameterValues] = [{}]
    for name in ordered(parameters):
        space = parameters[name]
        values = space.values() or []
        combinations = [
            {**known, name: value} if applies(space, known) else known
            for known, value in product(combinations, values)
            if applies(space, known) or value == values[0]
        ][: MAX_TRIALS + 1]
    return combinations
