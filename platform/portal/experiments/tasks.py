"""Tasks of the app, and when they are enqueued."""

from datetime import timedelta

from portal.accounts.models import Project
from portal.core.enqueue import background_task
from portal.experiments.services.artifact_usage import measure
from portal.experiments.services.deletion import destroy_overdue, free_orphans
from portal.experiments.services.job_runs import finish_orphaned_runs

# Task → how often it runs even if nothing enqueues it.
PERIODIC = {
    "experiments.finish_runs_of_ended_jobs": timedelta(minutes=1),
    "experiments.destroy_overdue_runs": timedelta(hours=6),
    "experiments.free_orphaned_artifacts": timedelta(days=1),
    "experiments.measure_artifacts": timedelta(hours=1),
}


@background_task("experiments.finish_runs_of_ended_jobs")
def finish_runs_of_ended_jobs() -> None:
    """End runs whose job has ended without a report."""
    finish_orphaned_runs()


@background_task("experiments.destroy_overdue_runs")
def destroy_overdue_runs() -> None:
    """Destroy what has been in the trash for too long."""
    destroy_overdue()


@background_task("experiments.free_orphaned_artifacts")
def free_orphaned_artifacts() -> None:
    """Free artifacts that belong to no run."""
    for project_id in Project.objects.values_list("pk", flat=True).iterator():
        free_orphans(project_id=project_id)


@background_task("experiments.measure_artifacts")
def measure_artifacts() -> None:
    """Count the bytes of artifacts, which somebody pays for."""
    for project_id in Project.objects.values_list("pk", flat=True).iterator():
        measure(project_id=project_id)
