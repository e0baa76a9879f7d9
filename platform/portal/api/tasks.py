"""Periodic tasks of the API."""

from datetime import timedelta

from portal.api import idempotency
from portal.core.enqueue import doorbell

PERIODIC = {"api.forget_answers": timedelta(hours=1)}


@doorbell("api.forget_answers")
def forget_answers() -> None:
    """Delete stored responses whose Idempotency-Key has expired."""
    idempotency.sweep_expired()
