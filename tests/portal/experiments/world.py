"""Experiments and runs for tests, written as a client's calls would leave them in the tables."""

import math
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from portal.accounts.models import Project
from portal.experiments.models import Experiment, LatestMetric, Metric, Param, Run, Tag
from portal.experiments.models.runs import LARGEST

NOON_MS = 1_790_000_000_000


def make_experiment(project: Project | str, name: str = "digits", **changes: Any) -> Experiment:
    """Make an experiment of a project."""
    workspace = project if isinstance(project, str) else project.pk
    fields: dict[str, Any] = {"lifecycle_stage": "active", "creation_time": NOON_MS} | changes
    made = Experiment.objects.create(name=name, workspace=workspace, **fields)
    made.artifact_location = f"mlflow-artifacts:/workspaces/{workspace}/{made.pk}"
    made.save()
    return made


def make_run(
    experiment: Experiment,
    name: str = "calm-owl-1",
    *,
    minute: int = 0,
    metrics: Mapping[str, float] | None = None,
    params: Mapping[str, str] | None = None,
    tags: Mapping[str, str] | None = None,
    **changes: Any,
) -> Run:
    """Make a run that began `minute` minutes after NOON_MS, with the last point of each metric."""
    run_id = uuid4().hex
    began = NOON_MS + minute * 60_000
    fields: dict[str, Any] = {"status": "FINISHED", "end_time": began + 30_000} | changes
    run = Run.objects.create(
        run_uuid=run_id,
        name=name,
        experiment=experiment,
        lifecycle_stage=fields.pop("lifecycle_stage", "active"),
        source_type="UNKNOWN",
        user_id=fields.pop("user_id", "bob"),
        start_time=began,
        artifact_uri=f"{experiment.artifact_location}/{run_id}/artifacts",
        **fields,
    )
    for key, value in (metrics or {}).items():
        log_curve(run, key, [value])
    Param.objects.bulk_create(Param(run=run, key=k, value=v) for k, v in (params or {}).items())
    Tag.objects.bulk_create(Tag(run=run, key=k, value=v) for k, v in (tags or {}).items())
    return run


def log_curve(run: Run, key: str, values: list[float]) -> None:
    """Log one value a step, a second apart, as MLflow stores them."""
    points = [
        {
            "run": run,
            "key": key,
            "step": step,
            "timestamp": (run.start_time or 0) + step * 1000,
            "value": 0.0 if math.isnan(value) else max(-LARGEST, min(LARGEST, value)),
            "is_nan": math.isnan(value),
        }
        for step, value in enumerate(values)
    ]
    Metric.objects.bulk_create(Metric(**point) for point in points)
    LatestMetric.objects.create(**points[-1])
