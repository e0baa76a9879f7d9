"""Recorded evidence about a version: golden predictions and metrics."""

import io
import math
from collections.abc import Iterator

import orjson
from django.db import transaction

from portal.accounts import audit
from portal.accounts.models import Project
from portal.core.errors import InvalidInput, NotFound
from portal.experiments.models import LatestMetric, Run
from portal.registry.catalog import find_model, find_version
from portal.registry.models import Evaluation, GoldenRecord, VersionRecord
from portal.registry.records import ensure_record
from portal.registry.services.actors import Actor
from portal.storage.services import add_file, discard_bytes, open_file, receive_bytes
from slipway.schemas.registry import EvaluationIn, GoldenIn


def record_of(project: Project, model: str, number: int) -> VersionRecord:
    """Return our row of an existing version. Raises NotFound."""
    details = find_model(project.pk, model)
    return ensure_record(project, details, find_version(project.pk, model, number))


def record_golden(
    *, project: Project, model: str, number: int, golden: GoldenIn, by: Actor
) -> GoldenRecord:
    """Store predictions to verify whenever the version is loaded. The newest ones count."""
    record = record_of(project, model, number)
    content = orjson.dumps(golden.model_dump(), option=orjson.OPT_SORT_KEYS)
    stored = receive_bytes(chunks=iter([content]))
    try:
        with transaction.atomic():
            file = add_file(
                project=project,
                by=by.user,
                name=f"golden-{record.pk}.json",
                stored=stored,
            )
            made = GoldenRecord.objects.create(
                record=record,
                file=file,
                rows=len(golden.inputs),
                absolute_tolerance=golden.absolute_tolerance,
                relative_tolerance=golden.relative_tolerance,
                recorded_by=by.user,
            )
            # The report of the replicas was based on other rows.
            VersionRecord.objects.filter(pk=record.pk).update(batching_report=None)
            audit.record(
                "model.golden",
                kind="model_version",
                target=record,
                label=f"{model} version {number}",
                project=project,
                after={"rows": made.rows, "sha256": stored.sha256},
            )
    except BaseException:
        discard_bytes(stored)
        raise
    return made


def golden_of(record: VersionRecord) -> GoldenRecord | None:
    """Return the newest golden predictions, without their rows."""
    return record.goldens.select_related("file__blob").first()


def read_golden(record: VersionRecord) -> GoldenIn:
    """Return the golden predictions of a version. Raises NotFound."""
    newest = golden_of(record)
    if newest is None:
        raise NotFound
    content = io.BytesIO()
    pieces: Iterator[bytes] = open_file(file=newest.file)
    for piece in pieces:
        content.write(piece)
    return GoldenIn.model_validate(orjson.loads(content.getvalue()))


def record_evaluation(
    *, project: Project, model: str, number: int, spec: EvaluationIn, by: Actor
) -> Evaluation:
    """Store a metric. It counts for gates only if a job reported it with its own token."""
    record = record_of(project, model, number)
    value = spec.figure if spec.run_id is None else _logged(project, spec)
    finite = value is not None and math.isfinite(value)
    with transaction.atomic():
        made = Evaluation.objects.create(
            record=record,
            metric=spec.metric,
            dataset=spec.dataset,
            value=value if finite else None,
            not_finite="" if finite else str(value),
            run_id=spec.run_id or "",
            workload_id=by.workload_id,
            recorded_by=by.user,
        )
        audit.record(
            "model.evaluate",
            kind="model_version",
            target=record,
            label=f"{model} version {number}",
            project=project,
            after={
                "metric": spec.metric,
                "dataset": spec.dataset,
                "value": str(value),
                "job": by.workload_id or None,
            },
        )
    return made


def _logged(project: Project, requested: EvaluationIn) -> float:
    """Return the last value that a run of the project logged for the metric."""
    runs = Run.objects.in_projects([project.pk]).filter(run_uuid=requested.run_id)
    latest_metric = LatestMetric.objects.filter(run__in=runs, key=requested.metric).first()
    if latest_metric is None:
        raise InvalidInput(
            f"No run {requested.run_id} of this project has logged {requested.metric}.",
            code="no_such_metric",
            field="metric",
            next_step="Open the page of the run, which lists its metrics.",
        )
    return latest_metric.number
