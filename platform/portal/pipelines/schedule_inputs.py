"""Values that a run of a schedule gives to the work that it starts."""

import json
from collections.abc import Mapping
from datetime import UTC
from typing import Any

from portal.pipelines.models import ProjectSchedule, ScheduledRun, TriggerEvent
from slipway.schemas.pipelines import PipelineRunIn
from slipway.schemas.schedule_references import resolved_references


def variables_of(run: ScheduledRun) -> dict[str, str]:
    """Return the environment variables of the jobs that a run starts."""
    variables = {"SLIPWAY_SCHEDULED_FOR": _time_of(run)}
    if run.event is not None:
        variables["SLIPWAY_EVENT"] = json.dumps(_event_of(run.event))
    return variables


def start_of(schedule: ProjectSchedule, run: ScheduledRun) -> PipelineRunIn:
    """Return the start of a pipeline for a run, with the values of references to it."""
    start = PipelineRunIn.model_validate(schedule.request)
    parameters = resolved_references(start.parameters, _values_of(run))
    return start.model_copy(update={"parameters": parameters})


def _values_of(run: ScheduledRun) -> Mapping[str, Any]:
    values: dict[str, Any] = {"schedule": {"time": _time_of(run)}}
    if run.event is not None:
        values["event"] = _event_of(run.event)
    return values


def _event_of(event: TriggerEvent) -> dict[str, Any]:
    return {"id": event.pk, **event.details}


def _time_of(run: ScheduledRun) -> str:
    """Return the time that a run is for, in ISO 8601 and UTC."""
    at = run.due_at.astimezone(UTC).replace(microsecond=0, tzinfo=None)
    return f"{at.isoformat()}Z"
