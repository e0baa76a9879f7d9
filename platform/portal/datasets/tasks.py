"""Tasks of the app, and when they are enqueued."""

from datetime import timedelta

from portal.core.enqueue import background_task
from portal.datasets.housekeeping import free_unused
from portal.datasets.version_checks import check_waiting

PERIODIC = {
    "datasets.check_drafts": timedelta(seconds=10),
    "datasets.free_unused": timedelta(hours=1),
}


@background_task("datasets.check_drafts")
def check_drafts() -> None:
    """Check the drafts that were closed."""
    check_waiting()


@background_task("datasets.free_unused")
def free() -> None:
    """Free what was deleted and what nobody refers to."""
    free_unused()
