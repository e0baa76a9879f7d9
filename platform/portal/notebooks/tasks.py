"""Tasks of the app, and when they are enqueued."""

from datetime import timedelta

from portal.core.enqueue import doorbell
from portal.notebooks.culling import look_after_idle
from portal.notebooks.housekeeping import free_deleted
from portal.notebooks.server_schedule import look_after_schedules
from portal.notebooks.workload_sync import follow_all

# Task → how often it runs even if nothing enqueues it.
PERIODIC = {
    "notebooks.look_after_servers": timedelta(seconds=5),
    "notebooks.free_deleted_files": timedelta(hours=1),
}


@doorbell("notebooks.look_after_servers")
def look_after_servers() -> None:
    """Sync with workloads, warn idle servers, stop warned ones, and apply schedules."""
    follow_all()
    look_after_idle()
    look_after_schedules()


@doorbell("notebooks.free_deleted_files")
def free_deleted_files() -> None:
    """Free notebooks whose deletion can no longer be taken back."""
    free_deleted()
