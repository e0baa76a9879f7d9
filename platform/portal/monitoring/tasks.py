"""Background tasks of this app."""

from datetime import timedelta

from portal.core.enqueue import background_task
from portal.monitoring.alert_delivery import deliver_pending
from portal.monitoring.exports_and_erasure import run_pending
from portal.monitoring.pipeline import process_all
from portal.monitoring.retention import delete_expired

# Task → interval at which it also runs without being enqueued.
PERIODIC = {
    "monitoring.look": timedelta(seconds=10),
    "monitoring.tell": timedelta(seconds=5),
    "monitoring.carry_out": timedelta(seconds=10),
    "monitoring.forget_old": timedelta(hours=1),
}


@background_task("monitoring.look")
def process_predictions() -> None:
    """Process new predictions of every endpoint."""
    process_all()


@background_task("monitoring.tell")
def deliver_alerts() -> None:
    """Send pending alert notifications."""
    deliver_pending()


@background_task("monitoring.carry_out")
def run_exports_and_erasures() -> None:
    """Export selections to dataset versions and run erasures."""
    run_pending()


@background_task("monitoring.forget_old")
def delete_expired_predictions() -> None:
    """Delete captured predictions beyond their retention time."""
    delete_expired()
