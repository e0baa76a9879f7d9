"""Tasks of the app, and when they are enqueued."""

from datetime import timedelta

from portal.core.enqueue import background_task
from portal.training.services.checkpoint_copies import delete_unneeded

PERIODIC = {"training.drop_copies": timedelta(minutes=1)}


@background_task("training.drop_copies")
def drop_copies() -> None:
    """Delete checkpoints from the store whose jobs will not resume."""
    delete_unneeded()
