"""Events that start schedules: found in the rows of other apps, with what has caused them.

Rows are read again and again, so an event has a key by which it is stored once.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db import transaction

from portal.accounts.models import AuditEvent
from portal.core import clock
from portal.datasets.models import Version
from portal.experiments.models import ModelVersion, ModelVersionTag, Tag
from portal.experiments.services.job_runs import JOB_TAG
from portal.monitoring.alerting import DRIFT, OUTPUTS
from portal.monitoring.models import Alert, Label
from portal.pipelines.models import (
    ProjectSchedule,
    ScheduledRun,
    StepJob,
    StepRun,
    StepSweep,
    TriggerEvent,
)
from portal.pipelines.services.step_starts import STEP_TAG
from portal.pipelines.transitions import move_events_from
from portal.registry.models import Move, VersionRecord
from portal.registry.records import datetime_from_ms
from portal.sweeps.models import TrialJob
from slipway.schemas.datasets import VersionState
from slipway.schemas.schedules import ScheduleState
from slipway.schemas.triggers import MOST_LABELS, TriggerIn

_WORKLOAD = "wl_"
_MOST_AT_ONCE = 500
# A row is visible this long after the time that is written in it at the latest.
_LATEST_COMMIT = timedelta(minutes=15)


@dataclass(frozen=True)
class Occurrence:
    """An event. `chain` returns the ids of the schedules that have led to it, the last first."""

    key: str
    at: datetime
    details: Mapping[str, Any]
    chain: Callable[[], tuple[str, ...]] = tuple


def occurrences(schedule: ProjectSchedule, since: datetime) -> Iterator[Occurrence]:
    """Yield the events of a schedule's trigger since a time, the earliest first."""
    trigger = TriggerIn.model_validate(schedule.trigger)
    if trigger.event == "labels":
        yield from _labels(schedule, trigger, since)
    sources: Mapping[str, Callable[..., Iterator[Occurrence]]] = {
        "dataset_version": _dataset_versions,
        "model_version": _model_versions,
        "model_stage": _moves,
        "drift_alert": _alerts,
    }
    source = sources.get(trigger.event)
    if source is not None:
        yield from source(schedule.project_id, trigger, since)


def find_events(schedule: ProjectSchedule) -> None:
    """Store the new events of a schedule that is active. Nothing else is changed."""
    since = schedule.events_from
    if since is None or schedule.status != ScheduleState.ACTIVE:
        return
    events = list(occurrences(schedule, since))
    fresh = _unknown(schedule, events)
    to = _next_start(schedule.event, since, events)
    if not fresh and to == since:
        return
    with transaction.atomic():
        # Stores nothing for a schedule that is paused or gets another trigger meanwhile.
        if move_events_from(schedule, to=to):
            store_events(schedule, fresh)


def store_events(schedule: ProjectSchedule, events: Iterable[Occurrence]) -> None:
    """Store events, each of them once."""
    rows = [
        TriggerEvent(
            schedule=schedule,
            key=event.key,
            occurred_at=event.at,
            details=dict(event.details),
            chain=list(event.chain()),
        )
        for event in events
    ]
    TriggerEvent.objects.bulk_create(rows, ignore_conflicts=True)


def _unknown(schedule: ProjectSchedule, events: Iterable[Occurrence]) -> list[Occurrence]:
    """Return the events that are not stored yet."""
    by_key = {event.key: event for event in events}
    stored = TriggerEvent.objects.filter(schedule=schedule, key__in=list(by_key))
    known = set(stored.values_list("key", flat=True)) if by_key else set()
    return [event for key, event in by_key.items() if key not in known]


def _next_start(kind: str, since: datetime, events: Sequence[Occurrence]) -> datetime:
    """Return the time from which the next call looks for events."""
    if kind == "labels":  # all of them since the last event count
        return since
    late = clock.now() - _LATEST_COMMIT
    if len(events) == _MOST_AT_ONCE:  # the next ones come with the next call
        return max(since, min(events[-1].at, late))
    # Moves rarely, since each move is an UPDATE.
    return late if since < late - _LATEST_COMMIT else since


def chain_of_job(job_id: str) -> tuple[str, ...]:
    """Return the schedules that have led to a job: as its own, or by its sweep or pipeline."""
    step = StepJob.objects.filter(job=job_id).values_list("step_run__run", flat=True).first()
    if step is not None:
        return chain_of_pipeline(step)
    sweep = TrialJob.objects.filter(job=job_id).values_list("trial__sweep", flat=True).first()
    if sweep is not None:
        steps = StepSweep.objects.filter(sweep=sweep).values_list("step_run__run", flat=True)
        run_id = steps.first()
        return _chain(sweep=sweep) if run_id is None else chain_of_pipeline(run_id)
    return _chain(job=job_id)


def chain_of_pipeline(pipeline_run_id: str) -> tuple[str, ...]:
    """Return the schedules that have led to a run of a pipeline."""
    return _chain(pipeline_run=pipeline_run_id)


def _chain(**work: str) -> tuple[str, ...]:
    run = ScheduledRun.objects.filter(**work).select_related("event").first()
    if run is None:
        return ()
    earlier = run.event.chain if run.event is not None else []
    return (run.schedule_id, *earlier)


def _chain_of_change(target_id: str) -> tuple[str, ...]:
    """Return the schedules that have led to a change that a job made with its token."""
    events = AuditEvent.objects.filter(target_id=target_id, token_id__startswith=_WORKLOAD)
    job_id = events.values_list("token_id", flat=True).first()
    return () if job_id is None else chain_of_job(job_id)


def _dataset_versions(project: str, trigger: TriggerIn, since: datetime) -> Iterator[Occurrence]:
    versions = Version.objects.filter(
        dataset__project=project,
        dataset__name=trigger.dataset,
        dataset__deleted_at__isnull=True,
        state=VersionState.READY,
        ready_at__gte=since,
    )
    for version in versions.select_related("dataset").order_by("ready_at")[:_MOST_AT_ONCE]:
        details = {
            "dataset": version.dataset.name,
            "version": version.number,
            "reference": version.reference,
        }
        at = version.ready_at or version.created_at
        yield Occurrence(version.pk, at, details, partial(_chain_of_change, version.pk))


def _model_versions(project: str, trigger: TriggerIn, since: datetime) -> Iterator[Occurrence]:
    since_ms = int(since.timestamp() * 1000)
    versions = ModelVersion.objects.filter(
        workspace=project, name=trigger.model, creation_time__gte=since_ms
    )
    for version in versions.order_by("creation_time", "version")[:_MOST_AT_ONCE]:
        details = {
            "model": version.name,
            "version": version.version,
            "uri": f"models:/{version.name}/{version.version}",
        }
        # A number is used again if its model is deleted and created anew.
        key = f"{version.name[:60]}:{version.version}:{version.creation_time}"
        at = datetime_from_ms(version.creation_time or since_ms)
        yield Occurrence(key, at, details, partial(_chain_of_version, project, version))


def _chain_of_version(project: str, version: ModelVersion) -> tuple[str, ...]:
    """Return the schedules that have led to a version: by its step, its author or its run."""
    tags = ModelVersionTag.objects.filter(
        workspace=project, name=version.name, version=version.version, key=STEP_TAG
    )
    mark = tags.values_list("value", flat=True).first()
    if mark:
        step = StepRun.objects.filter(pk=mark.rpartition("-")[0]).only("run_id").first()
        return () if step is None else chain_of_pipeline(step.run_id)
    records = VersionRecord.objects.filter(
        line__project=project, line__name=version.name, number=version.version
    )
    for record_id in records.values_list("pk", flat=True):
        if chain := _chain_of_change(record_id):
            return chain
    job_tags = Tag.objects.filter(run=version.run_id, key=JOB_TAG)
    job_id = job_tags.values_list("value", flat=True).first() if version.run_id else None
    return chain_of_job(job_id) if job_id else ()


def _moves(project: str, trigger: TriggerIn, since: datetime) -> Iterator[Occurrence]:
    moves = Move.objects.filter(
        line__project=project,
        line__name=trigger.model,
        version__isnull=False,
        created_at__gte=since,
    )
    if trigger.stage is not None:
        moves = moves.filter(kind="stage", target=trigger.stage)
    if trigger.alias is not None:
        moves = moves.filter(kind="alias", target=trigger.alias)
    for move in moves.select_related("line").order_by("created_at", "sequence")[:_MOST_AT_ONCE]:
        details = {
            "model": move.line.name,
            "version": move.version,
            "uri": f"models:/{move.line.name}/{move.version}",
            "stage": move.target if move.kind == "stage" else "",
            "alias": move.target if move.kind == "alias" else "",
        }
        yield Occurrence(move.pk, move.created_at, details, partial(_chain_of_move, move))


def _chain_of_move(move: Move) -> tuple[str, ...]:
    step = StepRun.objects.filter(kind="promote", value=move.pk).only("run_id").first()
    if step is not None:
        return chain_of_pipeline(step.run_id)
    records = VersionRecord.objects.filter(line=move.line_id, number=move.version or 0)
    record_id = records.values_list("pk", flat=True).first()
    return () if record_id is None else _chain_of_change(record_id)


def _alerts(project: str, trigger: TriggerIn, since: datetime) -> Iterator[Occurrence]:
    alerts = Alert.objects.filter(
        endpoint__project=project,
        endpoint__name=trigger.endpoint,
        kind__in=[DRIFT, OUTPUTS],
        created_at__gte=since,
    )
    for alert in alerts.select_related("endpoint").order_by("created_at")[:_MOST_AT_ONCE]:
        details = {
            "endpoint": alert.endpoint.name,
            "alert": alert.pk,
            "kind": alert.kind,
            "reason": alert.reason,
        }
        yield Occurrence(alert.pk, alert.created_at, details)


def _labels(schedule: ProjectSchedule, trigger: TriggerIn, since: datetime) -> Iterator[Occurrence]:
    """Yield the next event: enough new labels since the last one."""
    labels = Label.objects.filter(
        endpoint__project=schedule.project_id,
        endpoint__name=trigger.endpoint,
        version=1,
        created_at__gte=since,
    )
    events = TriggerEvent.objects.filter(schedule=schedule, occurred_at__gte=since)
    earlier = events.order_by("occurred_at", "pk").last()
    if earlier is not None:
        labels = labels.filter(pk__gt=earlier.key)
    count = trigger.count or MOST_LABELS
    for label in labels.order_by("pk").only("created_at")[count - 1 : count]:
        details = {"endpoint": trigger.endpoint, "labels": count}
        yield Occurrence(label.pk, label.created_at, details)
