"""Gives every process that loads Django the Celery app, so that no doorbell rings elsewhere.

And puts in place what one room needs of another beside it.
"""

from portal.config import notebook_jobs, problems
from portal.config.celery import app

__all__ = ["app", "notebook_jobs", "problems"]
