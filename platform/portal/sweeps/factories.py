"""Factories of what needs Optuna, which the control worker alone imports."""

from importlib import import_module
from typing import cast

from portal.sweeps.ports import ImportanceEstimator, Sampler, StudyReplay

_ADAPTERS = "portal.sweeps.adapters"


def sampler(algorithm: str) -> Sampler:
    """Return the sampler of an algorithm. The first call imports it, in the control worker alone.

    Optuna is slow to import, and cmaes is not in every installation.
    """
    if algorithm == "cma-es":
        return cast("Sampler", import_module(f"{_ADAPTERS}.cma_sampler").CmaSampler())
    return cast("Sampler", import_module(f"{_ADAPTERS}.optuna_sampler").OptunaSampler())


def importance_estimator() -> ImportanceEstimator:
    """Return what estimates the importance of parameters. The first call imports scikit-learn."""
    adapter = import_module(f"{_ADAPTERS}.optuna_importance")
    return cast("ImportanceEstimator", adapter.OptunaImportance())


def study_replay() -> StudyReplay:
    """Return a replay of the log of an Optuna storage, from its beginning."""
    return cast("StudyReplay", import_module(f"{_ADAPTERS}.optuna_replay").OptunaReplay())
