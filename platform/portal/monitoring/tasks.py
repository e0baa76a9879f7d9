"""Background tasks of this app."""

from datetime import timedelta

from portal.core.enqueue import background_task
from portal.monitoring.alert_delivery import deliver_pending
from portal.monitoring.exports_and_erasure import run_pending
from portal.monitoring.pipeline import process_all
from portal.monitoring.retention import delete_expired

# Task → interval at which it also runs without being enqueued.
PERIODIC = {
    "monitoring.process_predictions": timedelta(seconds=10),
    "monitoring.deliver_alerts": timedelta(seconds=5),
    "monitoring.run_exports_and_erasures": timedelta(seconds=10),
    "monitoring.delete_expired_predictions": timedelta(hours=1),
}


@background_task("monitoring.process_predictions")
def process_predictions() -> None:
    """Process new predictions of every endpoint."""
    process_all()


@background_task("monitoring.deliver_alerts")
def deliver_alerts() -> None:
    """Send pending alert notifications."""
    deliver_pending()


@background_task("monitoring.run_exports_and_erasures")
def run_exports_and_erasures() -> None:
    """Export selections to dataset versions and run erasures."""
    run_pending()


@background_task("monitoring.delete_expired_predictions")
def delete_expired_predictions() -> None:
    """Delete captured predictions beyond their retention time."""
    delete_expired()
