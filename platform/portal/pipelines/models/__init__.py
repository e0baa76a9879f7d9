"""Schedules with the runs that they have started or left out, and runs of pipelines."""

from portal.pipelines.models.runs import PipelineRun, StepJob, StepRun, StepSweep
from portal.pipelines.models.schedules import ProjectSchedule, ScheduledRun, TriggerEvent

__all__ = [
    "PipelineRun",
    "ProjectSchedule",
    "ScheduledRun",
    "StepJob",
    "StepRun",
    "StepSweep",
    "TriggerEvent",
]
