"""Suggestions by Optuna, with a study that is rebuilt from rows for each batch.

Imported by the control worker alone: Optuna takes a second to import.
"""

import warnings
from collections.abc import Sequence
from datetime import datetime
from typing import Literal

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import BaseSampler, GPSampler, NSGAIISampler, RandomSampler, TPESampler
from optuna.samplers.nsgaii import BLXAlphaCrossover
from optuna.trial import FrozenTrial, Trial, TrialState
from scipy.stats import qmc

from portal.sweeps.adapters.points import value_at
from portal.sweeps.ports import PastTrial, SuggestionInput
from slipway.schemas.sweeps import ParameterSpace, ParameterValues, applies, grid, ordered

optuna.logging.set_verbosity(optuna.logging.ERROR)
# Trials need a time, on which no suggestion depends.
_SOME_TIME = datetime(2000, 1, 1)  # noqa: DTZ001  (of Optuna, which has none with a time zone)
# Small, so that sweeps of a hundred trials get beyond the random first ones.
_POPULATION = 20
_MUTATION = 0.1
_GENERATION = {"NSGAIISampler:generation": 0}
_DIRECTIONS: dict[str, Literal["maximize", "minimize"]] = {"max": "maximize", "min": "minimize"}


class OptunaSampler:
    """The `Sampler` of Optuna's algorithms, the grid, and Sobol's sequence of SciPy."""

    def suggest(
        self, search: SuggestionInput, *, first: int, count: int
    ) -> Sequence[ParameterValues]:
        """See `portal.sweeps.ports.Sampler`."""
        if search.algorithm == "grid":
            return grid(search.parameters)[first : first + count]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            # Trials are asked for as slots become free, not in powers of two.
            warnings.filterwarnings("ignore", message="The balance properties of Sobol")
            if search.algorithm == "qmc":
                return _sobol(search, first, count)
            return _optuna(search, first, count)


def _optuna(search: SuggestionInput, first: int, count: int) -> list[ParameterValues]:
    distributions = {name: _distribution(space) for name, space in search.parameters.items()}
    study = optuna.create_study(
        sampler=_sampler(search, first),
        directions=[_DIRECTIONS[goal] for goal in (search.goal, *search.other_goals)],
    )
    study.add_trials([_frozen(trial, distributions) for trial in search.history])
    suggestions = []
    for _ in range(count):
        trial = study.ask()
        values: ParameterValues = {}
        for name in ordered(search.parameters):
            if applies(search.parameters[name], values):
                values[name] = _ask(trial, name, search.parameters[name])
        suggestions.append(values)
    return suggestions


def _sampler(search: SuggestionInput, first: int) -> BaseSampler:
    """Return the sampler, with random numbers of its own for each number of a trial."""
    seed = (search.seed * 1_000_003 + first) % 2**32
    if search.algorithm == "random":
        return RandomSampler(seed=seed)
    if search.algorithm == "gp":
        # The first trials, and parameters with conditions, are random.
        return GPSampler(seed=seed, warn_independent_sampling=False)
    if search.algorithm == "nsga-ii":
        # All complete trials are one generation, whose best are the parents of the next one. So
        # nothing of earlier generations needs to be stored.
        return NSGAIISampler(
            seed=seed,
            population_size=_POPULATION,
            # A mutated value is a random one: with few parameters most children would be.
            mutation_prob=min(_MUTATION, 1 / len(search.parameters)),
            crossover=BLXAlphaCrossover(),
        )
    is_multivariate = search.algorithm == "tpe-multivariate"
    # Running trials count as bad ones, so that those beside each other differ.
    return TPESampler(
        seed=seed, multivariate=is_multivariate, group=is_multivariate, constant_liar=True
    )


def _distribution(space: ParameterSpace) -> BaseDistribution:
    if space.type == "choice":
        return CategoricalDistribution(space.choices)
    low, high = space.low or 0, space.high or 0
    if space.type == "int":
        return IntDistribution(int(low), int(high), log=space.log, step=int(space.step or 1))
    return FloatDistribution(low, high, log=space.log, step=space.step)


def _ask(trial: Trial, name: str, space: ParameterSpace) -> float | int | str:
    if space.type == "choice":
        return str(trial.suggest_categorical(name, space.choices))
    low, high = space.low or 0, space.high or 0
    if space.type == "int":
        step = int(space.step or 1)
        return trial.suggest_int(name, int(low), int(high), step=step, log=space.log)
    return trial.suggest_float(name, low, high, step=space.step, log=space.log)


class _Past(FrozenTrial):
    """A trial of the history. The study, which lives as long as a call, may share it."""

    def __deepcopy__(self, _: dict[int, object]) -> "_Past":
        return self


def _frozen(trial: PastTrial, distributions: dict[str, BaseDistribution]) -> FrozenTrial:
    pruned_after = trial.pruned_after if trial.value is not None else None
    if pruned_after is not None:
        state = TrialState.PRUNED
    elif trial.value is not None:
        state = TrialState.COMPLETE
    else:
        state = TrialState.RUNNING if trial.is_running else TrialState.FAIL
    steps = {} if pruned_after is None or trial.value is None else {pruned_after: trial.value}
    return _Past(
        number=-1,  # the study gives it one
        trial_id=-1,
        state=state,
        value=None,
        values=[trial.value, *trial.other_values]
        if state == TrialState.COMPLETE and trial.value is not None
        else None,
        datetime_start=_SOME_TIME,
        datetime_complete=None if state == TrialState.RUNNING else _SOME_TIME,
        params=dict(trial.values),
        distributions={name: distributions[name] for name in trial.values},
        user_attrs={},
        system_attrs=_attributes(trial) if state == TrialState.COMPLETE else {},
        intermediate_values=steps,
    )


def _attributes(trial: PastTrial) -> dict[str, object]:
    """Return what samplers read of a complete trial beside its values."""
    constraints = {"constraints": list(trial.violations)} if trial.violations else {}
    return {**constraints, **_GENERATION}


def _sobol(search: SuggestionInput, first: int, count: int) -> list[ParameterValues]:
    """Return points of a scrambled Sobol sequence. Its next ones follow from number and seed."""
    names = ordered(search.parameters)
    engine = qmc.Sobol(len(names), scramble=True, rng=search.seed)
    if first:
        engine.fast_forward(first)
    suggestions = []
    for point in engine.random(count):
        values: ParameterValues = {}
        for name, part in zip(names, point, strict=True):
            space = search.parameters[name]
            if applies(space, values):
                values[name] = value_at(space, float(part))
        suggestions.append(values)
    return suggestions
