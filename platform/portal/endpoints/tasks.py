"""Background tasks of this app."""

from datetime import timedelta

from portal.core.enqueue import doorbell
from portal.endpoints.reconciler import forget_old, reconcile, reconcile_all

# Task → interval at which it also runs without being enqueued.
PERIODIC = {
    "endpoints.look_after": timedelta(seconds=1),
    "endpoints.forget_old": timedelta(hours=1),
}


@doorbell("endpoints.look_after")
def look_after() -> None:
    """Reconcile every endpoint."""
    reconcile_all()


@doorbell("endpoints.look_after_one")
def look_after_one(endpoint_id: str) -> None:
    """Reconcile one endpoint now."""
    reconcile(endpoint_id)


@doorbell("endpoints.forget_old")
def forget() -> None:
    """Delete expired rows."""
    forget_old()
