"""Tasks of the app, and when they are enqueued."""

from datetime import timedelta

from portal.core.enqueue import background_task
from portal.pipelines.services import progress

PERIODIC = {"pipelines.advance_all": timedelta(seconds=5)}


@background_task("pipelines.advance")
def advance(schedule_id: str) -> None:
    """Start what one schedule has due."""
    progress.advance_schedule(schedule_id)


@background_task("pipelines.advance_all")
def advance_all() -> None:
    """Start what schedules have due."""
    progress.advance_all()
