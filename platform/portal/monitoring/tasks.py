"""Doorbells of the room."""

from datetime import timedelta

from portal.core.enqueue import doorbell
from portal.monitoring.alert_delivery import deliver_pending
from portal.monitoring.exports_and_erasure import carry_out_waiting
from portal.monitoring.pipeline import process_all
from portal.monitoring.retention import forget_old

# Task → how often it runs whether or not anybody rings.
PERIODIC = {
    "monitoring.look": timedelta(seconds=10),
    "monitoring.tell": timedelta(seconds=5),
    "monitoring.carry_out": timedelta(seconds=10),
    "monitoring.forget_old": timedelta(hours=1),
}


@doorbell("monitoring.look")
def look() -> None:
    """Look at what endpoints predicted since the last time."""
    process_all()


@doorbell("monitoring.tell")
def tell() -> None:
    """Tell the alerts that are due."""
    deliver_pending()


@doorbell("monitoring.carry_out")
def carry_out() -> None:
    """Turn selections into dataset versions and erase what has to go."""
    carry_out_waiting()


@doorbell("monitoring.forget_old")
def forget() -> None:
    """Remove captured predictions whose time is over."""
    forget_old()
