"""Celery tasks of the app."""

from datetime import timedelta

from portal.compute.services.machine_retention import delete_old_machines
from portal.compute.services.vulnerabilities import check_packages as check_due
from portal.core.enqueue import background_task

# Task → how often it runs even if it is not enqueued.
PERIODIC = {
    "compute.check_packages": timedelta(minutes=1),
    "compute.delete_old_machines": timedelta(hours=1),
}


@background_task("compute.check_packages")
def check_packages() -> None:
    """Ask the vulnerability database about packages that are due."""
    check_due()


@background_task("compute.delete_old_machines")
def delete_machines() -> None:
    """Delete machines of node groups that were released beyond their retention."""
    delete_old_machines()
