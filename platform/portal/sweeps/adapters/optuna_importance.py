"""Importance of parameters by the fANOVA of Optuna (Hutter, Hoos and Leyton-Brown 2014).

Imported by the control worker alone: it loads Optuna and scikit-learn.
"""

import math
from collections.abc import Mapping, Sequence
from datetime import datetime

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.importance import FanovaImportanceEvaluator, get_param_importances
from optuna.trial import FrozenTrial, TrialState

from portal.sweeps.ports import PastTrial
from slipway.schemas.sweeps import ParameterSpace

optuna.logging.set_verbosity(optuna.logging.ERROR)
# Half of Optuna's: the time of the control worker counts.
_TREES = 32
_SEED = 20_260_101
# Trials need a time, on which nothing depends.
_SOME_TIME = datetime(2000, 1, 1)  # noqa: DTZ001  (of Optuna, which has none with a time zone)


class OptunaImportance:
    """The `ImportanceEstimator` of Optuna."""

    def estimate(
        self, parameters: Mapping[str, ParameterSpace], trials: Sequence[PastTrial]
    ) -> Mapping[str, float]:
        """See `portal.sweeps.ports.ImportanceEstimator`."""
        names = [
            name
            for name, space in parameters.items()
            if not space.when and all(name in trial.values for trial in trials)
        ]
        distributions = {name: _distribution(parameters[name]) for name in names}
        study = optuna.create_study()
        study.add_trials([_complete(trial, parameters, distributions) for trial in trials])
        evaluator = FanovaImportanceEvaluator(n_trees=_TREES, seed=_SEED)
        try:
            shares = get_param_importances(study, evaluator=evaluator, params=names)
        except RuntimeError:  # no tree has a variance: the metric hardly differs
            return {}
        return {name: float(share) for name, share in shares.items()}


def _distribution(space: ParameterSpace) -> BaseDistribution:
    if space.type == "choice":
        return CategoricalDistribution(space.choices)
    return FloatDistribution(_place(space, space.low or 0), _place(space, space.high or 0))


def _place(space: ParameterSpace, value: float) -> float:
    # Optuna weighs ranges by their length, which is that of the logarithms here.
    return math.log(value) if space.log else float(value)


def _complete(
    trial: PastTrial,
    parameters: Mapping[str, ParameterSpace],
    distributions: dict[str, BaseDistribution],
) -> FrozenTrial:
    values = {
        name: value
        if isinstance(value := trial.values[name], str)
        else _place(parameters[name], value)
        for name in distributions
    }
    return FrozenTrial(
        number=-1,  # the study gives it one
        trial_id=-1,
        state=TrialState.COMPLETE,
        value=trial.value,
        datetime_start=_SOME_TIME,
        datetime_complete=_SOME_TIME,
        params=values,
        distributions=distributions,
        user_attrs={},
        system_attrs={},
        intermediate_values={},
    )
