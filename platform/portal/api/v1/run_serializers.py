"""Serializers of tracked runs."""

from datetime import UTC, datetime

from portal.experiments.ports import (
    Artifact,
    Curve,
    ExperimentFacts,
    RunDetail,
    RunFacts,
    Stage,
)
from portal.experiments.services.job_runs import JOB_TAG
from portal.experiments.services.queries import RunComparison
from slipway.schemas.experiments import (
    ArtifactOut,
    ComparisonOut,
    CurveOut,
    DataInputOut,
    ExperimentOut,
    PointOut,
    RunDetailOut,
    RunOut,
)

_LAST_MS = 253_402_300_799_000


def moment(milliseconds: int | None) -> datetime | None:
    """Return a datetime from milliseconds since 1970, None for an empty value."""
    if milliseconds is None or not 0 <= milliseconds <= _LAST_MS:
        return None
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def experiment_out(details: ExperimentFacts) -> ExperimentOut:
    return ExperimentOut(
        id=details.id,
        name=details.name,
        note=details.note,
        runs=details.runs,
        created_at=moment(details.created_ms),
        newest_run_at=moment(details.newest_ms),
        deleted_at=moment(details.deleted_ms),
    )


def run_out(run: RunFacts) -> RunOut:
    return RunOut(
        id=run.id,
        experiment_id=run.experiment_id,
        name=run.name,
        status=run.status,
        user=run.user,
        started_at=moment(run.started_ms),
        ended_at=moment(run.ended_ms),
        is_deleted=run.stage is Stage.DELETED,
        metrics=run.metrics,
        params=run.params,
        tags=run.tags,
    )


def run_detail_out(run: RunDetail) -> RunDetailOut:
    return RunDetailOut(
        **dict(run_out(run.facts)),
        experiment=run.experiment,
        job=run.facts.tags.get(JOB_TAG),
        inputs=[DataInputOut.model_validate(it) for it in run.inputs],
    )


def curve_out(curve: Curve) -> CurveOut:
    points = [
        PointOut(step=point.step, at_ms=point.timestamp_ms, value=point.value)
        for point in curve.points
    ]
    return CurveOut(run=curve.run_id, key=curve.key, total=curve.total, points=points)


def comparison_out(comparison: RunComparison) -> ComparisonOut:
    return ComparisonOut(
        runs=[run_out(run) for run in comparison.runs],
        differing_params=list(comparison.differing),
        common_params=comparison.common,
        metrics=list(comparison.metrics),
    )


def artifact_out(artifact: Artifact) -> ArtifactOut:
    return ArtifactOut(
        path=artifact.path, is_folder=artifact.is_folder, size_bytes=artifact.size_bytes
    )
