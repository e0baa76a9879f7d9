"""Periodic tasks of the API."""

from datetime import timedelta

from portal.api import idempotency
from portal.core.enqueue import background_task

PERIODIC = {"api.delete_stored_responses": timedelta(hours=1)}


@background_task("api.delete_stored_responses")
def forget_answers() -> None:
    """Delete stored responses whose Idempotency-Key has expired."""
    idempotency.sweep_expired()
