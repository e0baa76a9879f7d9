"""Wiring of the process layer: the Celery app, and adapters between apps.

Every process that loads Django gets the Celery app, so that no task goes to another broker.
"""

from portal.config import engines, notebook_jobs, problems, provisioners
from portal.config.celery import app

__all__ = ["app", "engines", "notebook_jobs", "problems", "provisioners"]
