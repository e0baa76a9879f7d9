"""Triggers of schedules: what is refused when they are saved, events, and calls of webhooks."""

import hashlib
import re
import secrets
from collections.abc import Mapping
from typing import Any

from django.db import transaction

from portal.accounts import audit
from portal.accounts.models import Project
from portal.accounts.tokens import hash_of
from portal.core import clock
from portal.core.enqueue import enqueue_on_commit
from portal.core.errors import Conflict, InvalidInput, NotFound
from portal.datasets.models import Dataset
from portal.endpoints.models import Endpoint
from portal.pipelines.events import Occurrence, store_events
from portal.pipelines.models import ProjectSchedule, TriggerEvent
from portal.pipelines.tasks import advance
from portal.pipelines.transitions import change
from portal.registry.catalog import find_model
from slipway.schemas.pipeline_references import substitute
from slipway.schemas.pipelines import PipelineRunIn
from slipway.schemas.schedules import ScheduleState
from slipway.schemas.triggers import TriggerIn

_PREFIX = "slh_"
_SHAPE = re.compile(r"\Aslh_[A-Za-z0-9_-]{40}\Z")


def check_trigger(project: Project, trigger: TriggerIn, request: Mapping[str, Any] | None) -> None:
    """Raise InvalidInput for a trigger that cannot fire, or that its pipeline would fire again.

    `request` is the pipeline with its parameters, None for a job or a sweep.
    """
    if trigger.dataset is not None and not _has_dataset(project, trigger.dataset):
        raise _no_such("dataset", trigger.dataset, project)
    if trigger.endpoint is not None and not _has_endpoint(project, trigger.endpoint):
        raise _no_such("endpoint", trigger.endpoint, project)
    if trigger.model is not None:
        try:
            find_model(project.pk, trigger.model)
        except NotFound as error:
            raise _no_such("model", trigger.model, project) from error
    if request is not None and trigger.model is not None:
        _refuse_loop(trigger, PipelineRunIn.model_validate(request))


def create_hook(*, schedule: ProjectSchedule) -> str:
    """Return the secret of a new URL for the webhook of a schedule. An older one ends."""
    if schedule.event != "webhook":
        raise Conflict(
            f"{schedule.name} is not started by a webhook.",
            code="no_webhook",
            next_step="Change its trigger to webhook first.",
        )
    secret = _PREFIX + secrets.token_urlsafe(30)
    with transaction.atomic():
        digest = hash_of(secret)
        if not change(schedule, hook_digest=digest, hook_created_at=clock.now()):
            raise Conflict(
                f"{schedule.name} was changed by somebody else at the same time.",
                code="changed_meanwhile",
                next_step="Look at it, and try again.",
            )
        audit.record(
            "schedule.hook",
            kind="schedule",
            target=schedule,
            label=schedule.name,
            project=schedule.project,
        )
    return secret


def schedule_of_hook(secret: str) -> ProjectSchedule:
    """Return the schedule of a secret. Raises NotFound, the same for all that is wrong."""
    if not _SHAPE.match(secret):
        raise NotFound
    schedules = ProjectSchedule.objects.select_related("project__team")
    row = schedules.filter(hook_digest=hash_of(secret), deleted_at__isnull=True).first()
    if row is None or row.event != "webhook" or not _is_live(row.project):
        raise NotFound
    return row


def receive_call(*, schedule: ProjectSchedule, body: Mapping[str, Any], key: str) -> TriggerEvent:
    """Record a call of a webhook. Idempotent for calls with the same `key`, if it is not empty.

    Raises Conflict for a schedule that is paused.
    """
    key = hashlib.sha256(key.encode()).hexdigest() if key else secrets.token_hex(16)
    call = Occurrence(key=key, at=clock.now(), details={"body": dict(body)})
    with transaction.atomic():
        # Holds the row, so that nothing is recorded for a schedule that is paused meanwhile.
        if schedule.status != ScheduleState.ACTIVE or not change(schedule, zone=schedule.zone):
            raise Conflict(
                "The schedule of this webhook is paused.",
                code="schedule_paused",
                next_step="Resume the schedule, then call again.",
            )
        store_events(schedule, [call])
        enqueue_on_commit(advance, schedule.pk)
    return TriggerEvent.objects.get(schedule=schedule, key=key)


def _is_live(project: Project) -> bool:
    return Project.objects.filter(pk=project.pk).live().exists()


def _has_dataset(project: Project, name: str) -> bool:
    rows = Dataset.objects.filter(project=project, name=name, deleted_at__isnull=True)
    return rows.exists()


def _has_endpoint(project: Project, name: str) -> bool:
    return Endpoint.objects.filter(project=project, name=name).exists()


def _no_such(noun: str, name: str, project: Project) -> InvalidInput:
    return InvalidInput(
        f"There is no {noun} {name} in project {project.slug}.",
        code=f"no_such_{noun}",
        field=f"trigger.{noun}",
        next_step=f"Name one, as `slipway {noun} list` shows it.",
    )


def _refuse_loop(trigger: TriggerIn, start: PipelineRunIn) -> None:
    """Refuse a pipeline that causes the events by which it is started."""
    kind = "register" if trigger.event == "model_version" else "promote"
    for step in start.pipeline.steps:
        if step.kind != kind or _literal(step.model, start) != trigger.model:
            continue
        targets = {"stage": step.stage, "alias": step.alias}
        chosen = {"stage": trigger.stage, "alias": trigger.alias}
        is_any = kind == "register" or not any(chosen.values())
        if is_any or any(value and value == targets[name] for name, value in chosen.items()):
            verb = "registers versions of" if kind == "register" else "promotes versions of"
            raise InvalidInput(
                f"Step {step.name} {verb} model {trigger.model}, which would start the pipeline "
                "again and again.",
                code="trigger_loop",
                field="trigger.model",
                next_step="Choose another trigger, or let the step use another model.",
            )


def _literal(text: str | None, start: PipelineRunIn) -> str | None:
    """Return the value of a field that depends on parameters alone, or else None."""

    def lookup(reference: Any) -> Any:
        if reference.kind != "parameter":
            raise LookupError
        default = start.pipeline.parameters[reference.part].default
        return start.parameters.get(reference.part, default)

    try:
        return None if text is None else str(substitute(text, lookup))
    except LookupError:
        return None
