"""Tasks of the app, and when they are enqueued."""

from datetime import timedelta

from portal.core.enqueue import background_task
from portal.pipelines import housekeeping
from portal.pipelines.services import pipeline_progress, progress

PERIODIC = {
    "pipelines.advance_all": timedelta(seconds=5),
    "pipelines.advance_all_runs": timedelta(seconds=5),
    "pipelines.forget_old_runs": timedelta(minutes=10),
}


@background_task("pipelines.advance")
def advance(schedule_id: str) -> None:
    """Start what one schedule has due."""
    progress.advance_schedule(schedule_id)


@background_task("pipelines.advance_all")
def advance_all() -> None:
    """Start what schedules have due."""
    progress.advance_all()


@background_task("pipelines.forget_old_runs")
def forget_old_runs() -> None:
    """Delete old runs that were skipped or refused."""
    housekeeping.forget_old_runs()


@background_task("pipelines.advance_run")
def advance_run(run_id: str) -> None:
    """Start the steps of a run of a pipeline that can start."""
    pipeline_progress.advance_run(run_id)


@background_task("pipelines.advance_all_runs")
def advance_all_runs() -> None:
    """Advance every run of a pipeline, in case a message was lost."""
    pipeline_progress.advance_all()
