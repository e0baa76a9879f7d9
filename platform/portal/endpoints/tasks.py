"""Background tasks of this app."""

from datetime import timedelta

from portal.core.enqueue import background_task
from portal.endpoints.reconciler import delete_expired, reconcile, reconcile_all

# Task → interval at which it also runs without being enqueued.
PERIODIC = {
    "endpoints.reconcile": timedelta(seconds=1),
    "endpoints.delete_expired_rows": timedelta(hours=1),
}


@background_task("endpoints.reconcile")
def reconcile_endpoints() -> None:
    """Reconcile every endpoint."""
    reconcile_all()


@background_task("endpoints.reconcile_one")
def reconcile_endpoint(endpoint_id: str) -> None:
    """Reconcile one endpoint now."""
    reconcile(endpoint_id)


@background_task("endpoints.delete_expired_rows")
def delete_expired_rows() -> None:
    """Delete expired rows."""
    delete_expired()
