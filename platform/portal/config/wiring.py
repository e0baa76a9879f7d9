"""Gives every process that loads Django the Celery app, so that no doorbell rings elsewhere."""

from portal.config.celery import app

__all__ = ["app"]
