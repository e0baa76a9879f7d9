"""Factory of the sampler."""

from importlib import import_module
from typing import cast

from portal.sweeps.ports import Sampler

_ADAPTER = "portal.sweeps.adapters.optuna_sampler"


def sampler() -> Sampler:
    """Return the sampler. The first call imports Optuna, which no other process should do."""
    return cast("Sampler", import_module(_ADAPTER).OptunaSampler())
