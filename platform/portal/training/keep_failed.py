"""Limits on keeping the failed task of a job, so that its submitter can open a shell in it."""

from django.conf import settings

from portal.core.errors import InvalidInput
from slipway.schemas.training import JobIn

_FIELD = "keep_failed_minutes"


def check_keep_failed(requested: JobIn) -> None:
    """Raise InvalidInput for a job whose failed task cannot be kept as it is requested."""
    minutes = requested.keep_failed_minutes
    if not minutes:
        return
    most: int = settings.SLIPWAY_KEEP_FAILED_MAX_MINUTES
    if not most:
        raise _refusal("This installation keeps no failed tasks.", "Leave it out.")
    if minutes > most:
        raise _refusal(
            f"Failed tasks are kept for at most {most} minutes here.",
            f"Choose 1 to {most}, or ask an administrator to raise "
            "SLIPWAY_KEEP_FAILED_MAX_MINUTES.",
        )
    if not settings.SLIPWAY_HAS_RELAY:
        raise _refusal(
            "A failed task is kept for shells, and this installation runs no relay for them.",
            "Ask an administrator to set SLIPWAY_EMBEDDED_RELAY=true, or leave it out.",
        )


def refuse_to_keep_failed(requested: JobIn) -> None:
    """Raise InvalidInput for work that submits its jobs by itself, such as a pipeline."""
    if requested.keep_failed_minutes:
        raise _refusal(
            "Pipelines and schedules go on when a job has failed, and keep none.",
            "Leave it out, and submit a job that fails by itself with it.",
        )


def _refusal(message: str, next_step: str) -> InvalidInput:
    return InvalidInput(message, code="not_kept", field=_FIELD, next_step=next_step)
