"""Tasks of the app, and when they are enqueued."""

from datetime import timedelta

from portal.core.enqueue import doorbell
from portal.training.services.checkpoint_copies import drop_unneeded

PERIODIC = {"training.drop_copies": timedelta(minutes=1)}


@doorbell("training.drop_copies")
def drop_copies() -> None:
    """Delete checkpoints from the store whose jobs will not resume."""
    drop_unneeded()
