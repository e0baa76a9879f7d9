"""Importance of parameters for a metric: of compared runs, or of the newest of an experiment."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from portal.accounts.gates import ProjectRole, gated_project
from portal.core.policy import guarded_by
from portal.experiments.factories import tracker
from portal.experiments.ports import RunFacts
from portal.experiments.services.queries import search_of
from portal.web.experiments.views.selection import compared_ids
from slipway.schemas.accounts import Role, Scope
from slipway.schemas.experiments import SYSTEM_TAGS

_WHERE = {"area": "projects", "section": "experiments"}
_LONGEST_ID = 10
# Metrics about the machine are no targets unless the address names one.
_SYSTEM_METRICS = ("system/", *SYSTEM_TAGS)


@guarded_by(ProjectRole(Role.VIEWER, Scope.EXPERIMENTS_READ))
@require_safe
def project_importance(request: HttpRequest, project: str) -> HttpResponse:
    """Show the importance of parameters. The page Compare loads this section."""
    project_id = gated_project(request).pk
    importance = import_module("portal.experiments.importance")  # with numpy
    text = request.GET.get("experiment", "")
    is_id = text.isascii() and text.isdigit() and len(text) <= _LONGEST_ID
    experiment = int(text) if is_id else None
    if experiment is None:
        runs = tracker().runs(project_id, compared_ids(request))
    else:
        search = search_of(
            project_id=project_id,
            experiments=[experiment],
            columns=None,
            limit=importance.MOST_RUNS,
        )
        runs = tracker().search(search).items
    metrics = _metrics(runs)
    target = request.GET.get("target", "")
    if target not in metrics:
        target = metrics[0] if metrics else ""
    experiments = {run.experiment_id for run in runs}
    context: dict[str, Any] = {
        "runs": runs,
        "experiment": experiment,
        "whole_experiment": experiments.pop() if len(experiments) == 1 else None,
        "query": urlencode([("run", run.id) for run in runs]) if experiment is None else "",
        "metrics": metrics,
        "importance": importance.parameter_importance(runs, target) if target else None,
        "least_runs": importance.LEAST_RUNS,
        "most_runs": importance.MOST_RUNS,
        "most_parameters": importance.MOST_PARAMETERS,
        "significant": importance.SIGNIFICANT,
    }
    return render(request, "web/experiments/importance.html", context | _WHERE)


def _metrics(runs: Sequence[RunFacts]) -> list[str]:
    """Return the metrics of the runs, those of most runs first, about the machine last."""
    counts: dict[str, int] = {}
    for run in runs:
        for key in run.metrics:
            counts[key] = counts.get(key, 0) + 1
    return sorted(counts, key=lambda key: (key.startswith(_SYSTEM_METRICS), -counts[key], key))
