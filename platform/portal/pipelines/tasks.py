"""Tasks of the app, and when they are enqueued."""

from datetime import timedelta

from portal.core.enqueue import background_task
from portal.pipelines import housekeeping
from portal.pipelines.services import progress

PERIODIC = {
    "pipelines.advance_all": timedelta(seconds=5),
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
