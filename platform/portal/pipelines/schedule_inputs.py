"""Values that a run of a schedule gives to the work that it starts."""

from collections.abc import Mapping
from datetime import UTC
from typing import Any

from portal.pipelines.models import ProjectSchedule, ScheduledRun
from slipway.schemas.pipelines import PipelineRunIn
from slipway.schemas.schedule_references import resolved_references


def variables_of(run: ScheduledRun) -> dict[str, str]:
    """Return the environment variables of the jobs that a run starts."""
    return {"SLIPWAY_SCHEDULED_FOR": _time_of(run)}


def start_of(schedule: ProjectSchedule, run: ScheduledRun) -> PipelineRunIn:
    """Return the start of a pipeline for a run, with the values of references to it."""
    start = PipelineRunIn.model_validate(schedule.request)
    parameters = resolved_references(start.parameters, _values_of(run))
    return start.model_copy(update={"parameters": parameters})


def _values_of(run: ScheduledRun) -> Mapping[str, Any]:
    return {"schedule": {"time": _time_of(run)}}


def _time_of(run: ScheduledRun) -> str:
    """Return the time that a run is for, in ISO 8601 and UTC."""
    at = run.due_at.astimezone(UTC).replace(microsecond=0, tzinfo=None)
    return f"{at.isoformat()}Z"
