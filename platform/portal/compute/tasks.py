"""Celery tasks of the app."""

from datetime import timedelta

from portal.compute.services.vulnerabilities import check_packages as check_due
from portal.core.enqueue import background_task

# Task → how often it runs even if it is not enqueued.
PERIODIC = {"compute.check_packages": timedelta(minutes=1)}


@background_task("compute.check_packages")
def check_packages() -> None:
    """Ask the vulnerability database about packages that are due."""
    check_due()
