"""Tasks of the app, and when they are enqueued."""

from datetime import timedelta

from portal.core.early_runs import run_soon
from portal.core.enqueue import background_task
from portal.workloads.allocations import tend_allocations, waits_in_pool
from portal.workloads.growth import tend_node_groups
from portal.workloads.preemption import preempt_for_waiting
from portal.workloads.reconciler import delete_old_samples as forget_old_samples
from portal.workloads.reconciler import reconcile
from portal.workloads.scheduling import run_passes
from portal.workloads.services.dashboards import end_unattended_dashboards
from portal.workloads.services.shells import end_unattended
from portal.workloads.silence import find_silent

# Task → how often it runs even if nothing enqueues it.
PERIODIC = {
    "workloads.reconcile": timedelta(seconds=2),
    "workloads.tend_allocations": timedelta(seconds=1),
    "workloads.tend_node_groups": timedelta(seconds=2),
    "workloads.delete_usage_samples": timedelta(hours=1),
    "workloads.find_silent": timedelta(minutes=1),
    "workloads.end_shells": timedelta(seconds=20),
}


@background_task("workloads.schedule")
def schedule() -> None:
    """Place what can be placed now, order machines, and move preemptible work for the rest."""
    run_passes()
    if waits_in_pool():
        run_soon(tend.name)
    preempt_for_waiting()


@background_task("workloads.reconcile")
def reconcile_and_schedule() -> None:
    """Run the reconciler (expired leases, deadlines, holds), then schedule."""
    reconcile()
    run_passes()
    preempt_for_waiting()


@background_task("workloads.tend_allocations")
def tend() -> None:
    """Follow the allocations of pools, and order what waits."""
    tend_allocations()


@background_task("workloads.tend_node_groups")
def grow_and_shrink() -> None:
    """Request nodes of groups for what waits, and release those without work."""
    tend_node_groups()


@background_task("workloads.delete_usage_samples")
def delete_usage_samples() -> None:
    """Delete samples of use from weeks ago."""
    forget_old_samples()


@background_task("workloads.find_silent")
def find_silent_workloads() -> None:
    """Report running work that writes nothing and uses no processor."""
    find_silent()


@background_task("workloads.end_shells")
def end_shells() -> None:
    """Record the end of shells and dashboards that nobody uses any more."""
    end_unattended()
    end_unattended_dashboards()
