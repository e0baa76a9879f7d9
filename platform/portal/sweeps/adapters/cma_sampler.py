"""Suggestions by CMA-ES, whose state follows from the complete trials in the order of their ends.

Each population of complete trials moves the distribution once, also trials that were suggested from
an earlier one: those that run beside each other do not wait. New ends come behind, so the state
after a batch never changes. It starts anew from another point when it has converged. Parameters
with choices or conditions are drawn at random.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from cmaes import CMA

from portal.sweeps.adapters.points import part_of, value_at
from portal.sweeps.ports import PastTrial, SuggestionInput
from slipway.schemas.sweeps import ParameterValues, applies, numeric_names, ordered

# The first distribution covers most of the unit cube.
_SIGMA = 0.25


class CmaSampler:
    """The `Sampler` of CMA-ES."""

    def suggest(
        self, search: SuggestionInput, *, first: int, count: int
    ) -> Sequence[ParameterValues]:
        """See `portal.sweeps.ports.Sampler`."""
        names = numeric_names(search.parameters)
        optimizer = _replayed(search, names)
        seed = (search.seed * 1_000_003 + first) % 2**32
        optimizer.reseed_rng(seed)
        random = np.random.default_rng(seed)
        suggestions = []
        for _ in range(count):
            point = dict(zip(names, optimizer.ask(), strict=True))
            values: ParameterValues = {}
            for name in ordered(search.parameters):
                space = search.parameters[name]
                part = float(point[name]) if name in point else float(random.random())
                if applies(space, values):
                    values[name] = value_at(space, part)
            suggestions.append(values)
        return suggestions


def _replayed(search: SuggestionInput, names: Sequence[str]) -> CMA:
    """Return the optimizer after all populations of complete trials."""
    restarts = 0
    optimizer = _fresh(search.seed, len(names), restarts)
    size = optimizer.population_size
    complete = [trial for trial in search.history if trial.value is not None]
    for start in range(0, len(complete) - size + 1, size):
        batch = complete[start : start + size]
        optimizer.tell(
            list(
                zip(
                    [_point(search, names, trial) for trial in batch],
                    _losses(search, batch),
                    strict=True,
                )
            )
        )
        if optimizer.should_stop():
            restarts += 1
            optimizer = _fresh(search.seed, len(names), restarts)
    return optimizer


def _fresh(seed: int, dimensions: int, restarts: int) -> CMA:
    mean = np.full(dimensions, 0.5)
    if restarts:
        mean = np.random.default_rng([seed, restarts]).random(dimensions)
    bounds = np.tile([0.0, 1.0], (dimensions, 1))
    return CMA(mean=mean, sigma=_SIGMA, bounds=bounds, seed=0)


def _point(
    search: SuggestionInput, names: Sequence[str], trial: PastTrial
) -> npt.NDArray[np.float64]:
    return np.array([part_of(search.parameters[name], float(trial.values[name])) for name in names])


def _losses(search: SuggestionInput, trials: Sequence[PastTrial]) -> list[float]:
    """Return the losses of trials. Infeasible ones are worse than all others."""
    sign = -1.0 if search.goal == "max" else 1.0
    losses = [sign * (trial.value or 0.0) for trial in trials]
    worst = max(losses)
    return [
        worst + 1.0 + trial.violation if trial.violation else loss
        for trial, loss in zip(trials, losses, strict=True)
    ]
