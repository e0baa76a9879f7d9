"""Crashes at any statement and any commit, by a wrapper around the database connection."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import DatabaseError, connection


class Crashed(Exception):
    """The process died here: what was committed stays, the rest is gone, nobody got an answer."""


class CrashedBeforeCommit(Crashed, DatabaseError):
    """Died on the way to a commit; Django takes it for a lost connection and rolls back."""


@contextmanager
def crashing(at: int | None) -> Iterator[None]:
    """Die at the point number `at`; each statement has one point before it and one behind it.

    Commits are statements too: inside a test's transaction they are releases of savepoints.
    """
    if at is None:
        yield
        return
    left = at

    def point(error: type[Crashed]) -> None:
        nonlocal left
        left -= 1
        if left == -1:
            raise error

    def execute(
        run: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]
    ) -> Any:
        point(CrashedBeforeCommit if sql.startswith("RELEASE") else Crashed)
        answer = run(sql, params, many, context)
        point(Crashed)
        return answer

    with connection.execute_wrapper(execute):
        yield
