"""Background tasks of this app."""

from datetime import timedelta

from portal.core.enqueue import doorbell
from portal.monitoring.alert_delivery import deliver_pending
from portal.monitoring.exports_and_erasure import carry_out_waiting
from portal.monitoring.pipeline import process_all
from portal.monitoring.retention import forget_old

# Task → interval at which it also runs without being enqueued.
PERIODIC = {
    "monitoring.look": timedelta(seconds=10),
    "monitoring.tell": timedelta(seconds=5),
    "monitoring.carry_out": timedelta(seconds=10),
    "monitoring.forget_old": timedelta(hours=1),
}


@doorbell("monitoring.look")
def look() -> None:
    """Process new predictions of every endpoint."""
    process_all()


@doorbell("monitoring.tell")
def tell() -> None:
    """Send pending alert notifications."""
    deliver_pending()


@doorbell("monitoring.carry_out")
def carry_out() -> None:
    """Export selections to dataset versions and run erasures."""
    carry_out_waiting()


@doorbell("monitoring.forget_old")
def forget() -> None:
    """Delete captured predictions beyond their retention time."""
    forget_old()
