"""Tasks of the app, and when they are enqueued."""

from datetime import timedelta

from portal.core.enqueue import background_task
from portal.notebooks.culling import cull_idle_servers
from portal.notebooks.housekeeping import free_deleted
from portal.notebooks.server_schedule import apply_schedules
from portal.notebooks.services.workspace_transfers import drop_expired
from portal.notebooks.workload_sync import sync_all

# Task → how often it runs even if nothing enqueues it.
PERIODIC = {
    "notebooks.maintain_servers": timedelta(seconds=5),
    "notebooks.free_deleted_files": timedelta(hours=1),
}


@background_task("notebooks.maintain_servers")
def maintain_servers() -> None:
    """Sync with workloads, warn idle servers, stop warned ones, and apply schedules."""
    sync_all()
    cull_idle_servers()
    apply_schedules()


@background_task("notebooks.free_deleted_files")
def free_deleted_files() -> None:
    """Free notebooks whose deletion can no longer be taken back."""
    free_deleted()
    drop_expired()
