"""Translation of database errors and races with concurrent requests to errors of the portal."""

from django.core.exceptions import ObjectDoesNotExist
from django.db import IntegrityError, InterfaceError, OperationalError

from portal.core import db_patience
from portal.core.db_patience import DatabaseMissing
from portal.core.errors import Conflict, NotFound, SlipwayError, Unavailable

# A deadlock, or a timeout of a lock or a connection: a retry may succeed.
DATABASE_TROUBLE = (OperationalError, InterfaceError)


def database_busy() -> Unavailable:
    """Return the error for a database that is busy."""
    return Unavailable(
        "The database is temporarily unavailable.",
        code="database_busy",
        next_step="Try again in a moment.",
        retry_after_s=1,
    )


def database_problem(error: BaseException | None) -> Unavailable:
    """Return the error for a failure of the database or of the connection to it."""
    patience = db_patience.current()
    if patience is not None and patience.is_saved:
        return Unavailable(
            "The change was saved, but then the database stopped responding.",
            code="database_busy_after_change",
            next_step=(
                "Check the result before you send it again. With the same Idempotency-Key it is "
                "safe to retry."
            ),
            retry_after_s=1,
        )
    if not isinstance(error, DatabaseMissing):
        return database_busy()
    return Unavailable(
        str(error),
        code="database_replaced" if error.is_replaced else "database_missing",
        next_step="An administrator must stop Slipway, put the file back or restore a backup, and "
        "start it again.",
        retry_after_s=5,
    )


def raced(error: BaseException | None) -> SlipwayError | None:
    """Return the portal's error for one that a race may have caused, or None for any other.

    An object may be deleted between its gate and the lock on it, and what was free when it was read
    may be taken when it is written.
    """
    if isinstance(error, ObjectDoesNotExist):
        return NotFound()
    if isinstance(error, DATABASE_TROUBLE):
        return database_problem(error)
    if isinstance(error, IntegrityError):
        return Conflict(
            "Somebody else just changed the same object.",
            code="changed_meanwhile",
            next_step="Reload it, then try again.",
        )
    return None
