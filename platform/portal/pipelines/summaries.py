"""Schedules as lists and pages show them, each with its last run."""

from collections.abc import Iterable

from django.db.models import OuterRef, Subquery

from portal.pipelines.models import ProjectSchedule, ScheduledRun


def last_runs(schedules: Iterable[ProjectSchedule]) -> dict[str, ScheduledRun]:
    """Return the newest run of each schedule that has one, by the schedule's id, in one query."""
    newest = ScheduledRun.objects.filter(schedule=OuterRef("pk")).order_by("-due_at")
    keys = [schedule.pk for schedule in schedules]
    of_these = ProjectSchedule.objects.filter(pk__in=keys).order_by()
    ids = of_these.values_list(Subquery(newest.values("pk")[:1]), flat=True)
    runs = ScheduledRun.objects.with_outcomes().filter(pk__in=ids)
    return {run.schedule_id: run for run in runs}


def run_of_job(job_id: str) -> ScheduledRun | None:
    """Return the run of a schedule that started a job, or None."""
    runs = ScheduledRun.objects.select_related("schedule")
    return runs.filter(job=job_id).first()


def run_of_sweep(sweep_id: str) -> ScheduledRun | None:
    """Return the run of a schedule that started a sweep, or None."""
    runs = ScheduledRun.objects.select_related("schedule")
    return runs.filter(sweep=sweep_id).first()


def run_of_pipeline(pipeline_run_id: str) -> ScheduledRun | None:
    """Return the run of a schedule that started a run of a pipeline, or None."""
    runs = ScheduledRun.objects.select_related("schedule")
    return runs.filter(pipeline_run=pipeline_run_id).first()
