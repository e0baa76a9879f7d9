"""Presenters of the project overview: the latest experiments and models."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from portal.accounts.models import Project
from portal.experiments.factories import tracker
from portal.experiments.filters import FieldKind, RunField
from portal.experiments.ports import ExperimentFacts, RunSearch, SortOrder
from portal.registry.catalog import ModelFacts, newest_models
from portal.registry.models import VersionRecord
from portal.registry.records import datetime_from_ms, line_of, rules_of
from portal.registry.services.promotions import stage_of
from portal.web.experiments.presenters.runs import RunRow, number, row_of

SHOWN = 5
# Words in the names of metrics of which less is better, and of those that sum up a run.
_LESS_IS_BETTER = frozenset(
    ("loss", "error", "err", "mae", "mse", "rmse", "mape", "perplexity", "wer", "cer", "logloss")
)
_SUMMARIES = ("accuracy", "acc", "auc", "f1", "r2", "score", "map", "precision", "recall")
_HELD_OUT = frozenset(("val", "valid", "validation", "test", "eval"))


@dataclass(frozen=True)
class BestRun:
    """The run with the best value of a metric. `extreme` is `highest` or `lowest`."""

    run_id: str
    metric: str
    extreme: str
    value: str


@dataclass(frozen=True)
class ExperimentLine:
    """An experiment with its last run, and its best one if a metric was logged."""

    experiment: ExperimentFacts
    newest_at: datetime
    last: RunRow | None
    best: BestRun | None


@dataclass(frozen=True)
class ModelSummary:
    """A model with the stage of its newest version."""

    model: ModelFacts
    stage: str
    updated_at: datetime


def latest_experiments(project: Project) -> list[ExperimentLine]:
    """Return the experiments used last. Each takes a fixed number of queries."""
    experiments = tracker().experiments(project.pk)[:SHOWN]
    return [_experiment_line(project, experiment) for experiment in experiments]


def _experiment_line(project: Project, experiment: ExperimentFacts) -> ExperimentLine:
    within = (experiment.id,)
    newest = tracker().search(RunSearch(project.pk, within, columns=None, limit=1)).items
    metric = main_metric(newest[0].metrics) if newest else None
    return ExperimentLine(
        experiment,
        datetime_from_ms(experiment.newest_ms or experiment.created_ms or 0),
        row_of(newest[0], ()) if newest else None,
        _best_run(project, within, metric) if metric else None,
    )


def _best_run(project: Project, within: tuple[int, ...], metric: str) -> BestRun | None:
    column = RunField(FieldKind.METRIC, metric)
    descending = not less_is_better(metric)
    search = RunSearch(
        project.pk, within, order=SortOrder(column, descending), columns=(column,), limit=1
    )
    for run in tracker().search(search).items:
        # NaN ranks last. Then no run has a value, as an AUC of a single class.
        if math.isfinite(run.metrics.get(metric, math.nan)):
            extreme = "highest" if descending else "lowest"
            return BestRun(run.id, metric, extreme, number(run.metrics[metric]))
    return None


def main_metric(names: Iterable[str]) -> str | None:
    """Return the metric that sums up a run best by its name, or None if there is none.

    A quality measured on data held out comes first, then any quality, then a loss. Metrics of the
    system do not count.
    """
    candidates = sorted(name for name in names if not name.startswith("system/"))
    return min(candidates, key=_rank, default=None)


def _rank(name: str) -> tuple[int, int]:
    words = _words(name)
    is_summary = any(word in words for word in _SUMMARIES)
    kind = 0 if is_summary else 1 if words & _LESS_IS_BETTER else 2
    return kind, 0 if words & _HELD_OUT else 1


def less_is_better(metric: str) -> bool:
    """Return whether a metric is a loss or an error, by its name."""
    return bool(_words(metric) & _LESS_IS_BETTER)


def _words(name: str) -> frozenset[str]:
    plain = "".join(letter if letter.isalnum() else " " for letter in name.lower())
    return frozenset(plain.split())


def latest_models(project: Project) -> list[ModelSummary]:
    """Return the models changed last. Each takes a fixed number of queries."""
    rules = rules_of(project)
    summaries = []
    for model in newest_models(project.pk, limit=SHOWN):
        stage = ""
        if model.latest:
            records = VersionRecord.objects.filter(line=line_of(model), number=model.latest)
            stage = stage_of(records.first(), rules)
        summaries.append(ModelSummary(model, stage, datetime_from_ms(model.updated_ms)))
    return summaries
