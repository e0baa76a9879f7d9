"""Importance of parameters for a metric, estimated from runs that were made anyway.

Each parameter divides the runs into groups: one for each value, for a number with many values
quantile bins, and one for runs without it. Its importance is the epsilon squared of the ranks of
the metric between these groups (Kelley 1935; for ranks Tomczak and Tomczak 2014): the share of the
variance of the ranks that the groups explain, less what as many random groups would explain. Ranks
make it independent of the scale of the metric and robust to outliers.

A permutation test says which values could be chance. The metric is shuffled among the runs, and
each parameter is compared with the best of all parameters in every shuffle (Westfall and Young
1993), so that searching many parameters finds no more by chance than searching one.

Spearman's rank correlation is the direction: whether larger values go with a larger metric.

Runs are no designed experiment: parameters that changed together share what either causes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from portal.experiments.ports import RunFacts

LEAST_RUNS = 10
MOST_RUNS = 1_000
MOST_PARAMETERS = 200
SIGNIFICANT = 0.05
_SHUFFLES = 999
_MOST_GROUPS, _RUNS_IN_GROUP = 6, 2
_SEED = 20_260_101
Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.intp]


@dataclass(frozen=True)
class ParameterImportance:
    """Importance of one parameter, from 0 (none) to 1 (it explains the order of all runs).

    `correlation` is from -1 to 1, None for a parameter that is not a number. `p` is the adjusted
    probability of so much by chance. `like` are parameters that divide the runs in the same way.
    """

    name: str
    importance: float
    correlation: float | None
    p: float
    groups: int
    like: Sequence[str] = ()

    @property
    def is_significant(self) -> bool:
        """True if chance explains it with a probability below SIGNIFICANT."""
        return self.p < SIGNIFICANT

    @property
    def percent(self) -> int:
        """The importance in percent."""
        return round(self.importance * 100)


@dataclass(frozen=True)
class Importance:
    """Importance of the parameters of runs for a metric, the largest first.

    `runs` have a finite value of the metric, `left_out` have none. Parameters in `unjudged` have a
    value of their own in nearly every run. `skipped` is the number of parameters, those that fewest
    runs have, beyond MOST_PARAMETERS. `fault` says why there are no numbers.
    """

    metric: str
    runs: int
    left_out: int
    parameters: Sequence[ParameterImportance] = ()
    unjudged: Sequence[str] = ()
    skipped: int = 0
    fault: str = ""


def parameter_importance(runs: Sequence[RunFacts], metric: str) -> Importance:
    """Estimate the importance of each parameter for the last value of a metric.

    Takes at most MOST_RUNS runs, the first ones, and gives the same numbers for the same runs.
    """
    considered = runs[:MOST_RUNS]
    used = [run for run in considered if np.isfinite(run.metrics.get(metric, np.nan))]
    left_out = len(considered) - len(used)
    if len(used) < LEAST_RUNS:
        return Importance(
            metric,
            len(used),
            left_out,
            fault=f"Importance needs at least {LEAST_RUNS} runs with a finite value of {metric}; "
            f"there {'is' if len(used) == 1 else 'are'} {len(used)}.",
        )
    ranks = _ranks(np.array([run.metrics[metric] for run in used], dtype=np.float64))
    if np.ptp(ranks) == 0:
        return Importance(
            metric, len(used), left_out, fault=f"{metric} has the same value in all of these runs."
        )
    names = _varied(used)
    grouped, numbers, unjudged = _grouped(used, names[:MOST_PARAMETERS])
    return Importance(
        metric,
        len(used),
        left_out,
        parameters=_judged(grouped, numbers, ranks),
        unjudged=unjudged,
        skipped=max(0, len(names) - MOST_PARAMETERS),
    )


def _varied(runs: Sequence[RunFacts]) -> list[str]:
    """Return the parameters that are not the same in all runs, those of most runs first."""
    values: dict[str, list[str]] = {}
    for run in runs:
        for name, text in run.params.items():
            values.setdefault(name, []).append(text)
    varied = [
        name
        for name, texts in values.items()
        if len(texts) < len(runs) or any(text != texts[0] for text in texts)
    ]
    return sorted(varied, key=lambda name: (-len(values[name]), name))


def _grouped(
    runs: Sequence[RunFacts], names: Sequence[str]
) -> tuple[dict[str, Codes], dict[str, Floats], list[str]]:
    """Return the group of each run by parameter, the numbers of the numeric ones, and the rest."""
    grouped: dict[str, Codes] = {}
    numbers: dict[str, Floats] = {}
    unjudged: list[str] = []
    for name in names:
        texts = [run.params.get(name) for run in runs]
        values = np.array([_number(text) for text in texts], dtype=np.float64)
        is_number = all(
            np.isfinite(values[at]) for at, text in enumerate(texts) if text is not None
        )
        codes = _bins(values) if is_number else _categories(texts)
        groups = len(np.unique(codes))
        if groups < 2:
            continue
        if groups * _RUNS_IN_GROUP > len(runs):
            unjudged.append(name)
            continue
        grouped[name] = codes
        if is_number:
            numbers[name] = values
    return grouped, numbers, unjudged


def _number(text: str | None) -> float:
    try:
        return float(text) if text is not None and "_" not in text else np.nan
    except ValueError:
        return np.nan


def _categories(texts: Sequence[str | None]) -> Codes:
    codes: dict[str | None, int] = {}
    return np.array([codes.setdefault(text, len(codes)) for text in texts], dtype=np.intp)


def _bins(values: Floats) -> Codes:
    """Return a group for each value, or quantile bins of many. Runs without one are group 0."""
    finite = values[np.isfinite(values)]
    edges = np.unique(finite)
    if len(edges) > _MOST_GROUPS:
        edges = np.unique(np.quantile(finite, np.arange(_MOST_GROUPS) / _MOST_GROUPS))
    codes = np.searchsorted(edges, values, side="right")
    return np.where(np.isfinite(values), codes, 0)


def _judged(
    grouped: dict[str, Codes], numbers: dict[str, Floats], ranks: Floats
) -> list[ParameterImportance]:
    if not grouped:
        return []
    generator = np.random.default_rng(_SEED)
    # The first row is the metric itself, the others are shuffled.
    rows = np.vstack([ranks, generator.permuted(np.tile(ranks, (_SHUFFLES, 1)), axis=1)])
    explained = _epsilon_squared(list(grouped.values()), rows)
    best = explained[:, 1:].max(axis=0)
    partitions: dict[bytes, list[str]] = {}
    for name, codes in grouped.items():
        partitions.setdefault(_categories(codes.tolist()).tobytes(), []).append(name)
    like = {name: names for names in partitions.values() for name in names}
    parameters = [
        ParameterImportance(
            name=name,
            importance=max(0.0, float(values[0])),
            correlation=_correlation(numbers.get(name), ranks),
            p=float((1 + np.count_nonzero(best >= values[0])) / (1 + _SHUFFLES)),
            groups=len(np.unique(grouped[name])),
            like=[other for other in like[name] if other != name],
        )
        for name, values in zip(grouped, explained, strict=True)
    ]
    return sorted(parameters, key=lambda it: (-it.importance, it.p, it.name))


def _epsilon_squared(grouped: Sequence[Codes], rows: Floats) -> Floats:
    """Return epsilon squared of each division into groups for each row of ranks.

    Shape (divisions, rows). All are in one matrix product: many small ones take far longer on a
    machine whose processors are busy.
    """
    total = rows.shape[1]
    members, sizes = [], []
    for codes in grouped:
        _, groups = np.unique(codes, return_inverse=True)
        sizes.append(int(groups.max()) + 1)
        members.append(np.eye(sizes[-1])[groups])
    matrix = np.hstack(members)
    centred = rows - rows[0].mean()
    sums = (centred @ matrix) ** 2 / matrix.sum(axis=0)
    between = np.add.reduceat(sums, np.cumsum([0, *sizes[:-1]]), axis=1).T
    variance = float((centred[0] ** 2).sum())
    within = (variance - between) / (total - np.array(sizes))[:, np.newaxis]
    result: Floats = 1.0 - within / (variance / (total - 1))
    return result


def _correlation(values: Floats | None, ranks: Floats) -> float | None:
    """Return Spearman's rank correlation over the runs that have the parameter."""
    if values is None:
        return None
    finite = np.isfinite(values)
    first, second = _ranks(values[finite]), _ranks(ranks[finite])
    if len(first) < LEAST_RUNS or np.ptp(first) == 0 or np.ptp(second) == 0:
        return None
    return float(np.corrcoef(first, second)[0, 1])


def _ranks(values: Floats) -> Floats:
    """Return the ranks of values from 1 on. Equal values share the mean of theirs."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks: Any = ends - (counts - 1) / 2
    return np.asarray(ranks[places], dtype=np.float64)
