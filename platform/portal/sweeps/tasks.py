"""Tasks of the app, and when they are enqueued."""

from datetime import timedelta

from portal.core.enqueue import background_task
from portal.sweeps.services import progress

PERIODIC = {"sweeps.advance_all": timedelta(seconds=5)}


@background_task("sweeps.advance")
def advance(sweep_id: str) -> None:
    """Record the ended trials of one sweep and start the next ones."""
    progress.advance_sweep(sweep_id)


@background_task("sweeps.advance_all")
def advance_all() -> None:
    """Advance every sweep, in case a message was lost."""
    progress.advance_all()
