"""Schedules: jobs, sweeps and pipelines that start at times or for events."""

from collections.abc import Mapping
from typing import Any

from slipway.connection import Connection
from slipway.pages import Pages
from slipway.resources.requests import build
from slipway.schemas.base import PageOf
from slipway.schemas.pipelines import PipelineRunIn
from slipway.schemas.schedules import (
    HookOut,
    PreviewIn,
    ScheduledRunOut,
    ScheduleEdit,
    ScheduleIn,
    ScheduleOut,
    SchedulePreview,
)


class Schedules:
    """The schedules of a project. `schedule` is the name of one.

    GET, POST projects/{project}/schedules · POST schedules/preview · GET, PATCH, DELETE
    schedules/{schedule} · POST …/pause, resume, run, hook · GET …/runs
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list(self, *, project: str, search: str | None = None) -> Pages[ScheduleOut]:
        """List schedules whose name contains `search`, newest first."""
        segments = ("projects", project, "schedules")
        return Pages(self._connection, segments, PageOf[ScheduleOut], {"q": search})

    def get(self, schedule: str, *, project: str) -> ScheduleOut:
        """Return one schedule, with its next times and its last run."""
        return self._connection.fetch(ScheduleOut, "GET", *_path(project, schedule))

    def create(
        self,
        name: str,
        cron: str | None = None,
        *,
        project: str,
        trigger: Mapping[str, Any] | None = None,
        zone: str | None = None,
        job: str | None = None,
        sweep: str | None = None,
        pipeline: PipelineRunIn | None = None,
        pipeline_run: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        missed: str | None = None,
        overlap: str | None = None,
        run_as: str | None = None,
    ) -> ScheduleOut:
        """Create a schedule that repeats a job, a sweep or a run of a pipeline, named by its id.

        It starts at the times of `cron`, or for the events of `trigger`, such as
        `{"event": "model_version", "model": "digits"}`. `pipeline` is one that has not run yet,
        with its code. `parameters` replace those of the pipeline. `missed` is skip, once or all;
        `overlap` is skip, queue or cancel. `run_as` is a service account, which pays instead of
        you. Raises InvalidInput for what can never run.
        """
        body = build(
            ScheduleIn,
            name=name,
            cron=cron,
            trigger=trigger,
            zone=zone,
            job=job,
            sweep=sweep,
            pipeline=pipeline,
            pipeline_run=pipeline_run,
            parameters=None if parameters is None else dict(parameters),
            missed=missed,
            overlap=overlap,
            run_as=run_as,
        )
        segments = ("projects", project, "schedules")
        return self._connection.fetch(ScheduleOut, "POST", *segments, body=body)

    def edit(
        self,
        schedule: str,
        *,
        project: str,
        cron: str | None = None,
        trigger: Mapping[str, Any] | None = None,
        zone: str | None = None,
        job: str | None = None,
        sweep: str | None = None,
        pipeline: PipelineRunIn | None = None,
        pipeline_run: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        missed: str | None = None,
        overlap: str | None = None,
        run_as: str | None = None,
    ) -> ScheduleOut:
        """Change a schedule. You pay for what it starts from then on.

        `run_as` names a service account that pays, or `me`. Without it, a service account that paid
        goes on to pay if you may use it.
        """
        body = build(
            ScheduleEdit,
            cron=cron,
            trigger=trigger,
            zone=zone,
            job=job,
            sweep=sweep,
            pipeline=pipeline,
            pipeline_run=pipeline_run,
            parameters=None if parameters is None else dict(parameters),
            missed=missed,
            overlap=overlap,
            run_as=run_as,
        )
        return self._connection.fetch(ScheduleOut, "PATCH", *_path(project, schedule), body=body)

    def preview(
        self, cron: str, *, project: str, zone: str | None = None, count: int | None = None
    ) -> SchedulePreview:
        """Return the next times of a cron expression. Nothing is created."""
        body = build(PreviewIn, cron=cron, zone=zone, count=count)
        segments = ("projects", project, "schedules", "preview")
        return self._connection.fetch(SchedulePreview, "POST", *segments, body=body)

    def pause(self, schedule: str, *, project: str) -> ScheduleOut:
        """Start nothing until the schedule is resumed. What it has started goes on."""
        return self._connection.fetch(ScheduleOut, "POST", *_path(project, schedule), "pause")

    def resume(self, schedule: str, *, project: str) -> ScheduleOut:
        """Go on with a paused schedule. You pay for what it starts from then on."""
        return self._connection.fetch(ScheduleOut, "POST", *_path(project, schedule), "resume")

    def run(self, schedule: str, *, project: str) -> ScheduledRunOut:
        """Run a schedule once at once, beside its times. You pay for it."""
        return self._connection.fetch(ScheduledRunOut, "POST", *_path(project, schedule), "run")

    def runs(self, schedule: str, *, project: str) -> Pages[ScheduledRunOut]:
        """List the runs of a schedule, the latest first."""
        segments = (*_path(project, schedule), "runs")
        return Pages(self._connection, segments, PageOf[ScheduledRunOut])

    def create_hook(self, schedule: str, *, project: str) -> HookOut:
        """Create the secret URL of a schedule's webhook. An older one ends."""
        return self._connection.fetch(HookOut, "POST", *_path(project, schedule), "hook")

    def delete(self, schedule: str, *, project: str) -> None:
        """Delete a schedule. What it has started goes on."""
        self._connection.send("DELETE", *_path(project, schedule))


def _path(project: str, schedule: str) -> tuple[str, str, str, str]:
    return ("projects", project, "schedules", schedule)
