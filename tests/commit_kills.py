"""Work that is killed by SIGKILL at each of its commits, once before and once after it.

A life of the work is a fork of this process, with connections of its own. It is killed at its first
commit; so the next life begins where that commit left the database, and all of them together stop
at every commit there is. A life that commits nothing ends by itself.
"""

import os
import signal
from collections.abc import Callable
from typing import Any, Final

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

_MOST_LIVES: Final = 500
_WRITES: Final = ("INSERT", "UPDATE", "DELETE", "WITH")
_DONE, _FAILED = 0, 70


def kill_at_every_commit(work: Callable[[], object]) -> int:
    """Do some work in as many lives as it has commits. Returns the number of kills."""
    kills = 0
    while kills < _MOST_LIVES:
        for is_before in (True, False):
            if not _killed(work, is_before=is_before):
                return kills
            kills += 1
    raise AssertionError(f"the work still commits something after {kills} kills")


def _killed(work: Callable[[], object], *, is_before: bool) -> bool:
    """Let one life do the work. Returns whether a commit has killed it."""
    for connection in connections.all():  # a fork would share our sessions
        connection.close()
        connection.close_pool()  # type: ignore[attr-defined]
    pid = os.fork()
    if pid == 0:
        _live(work, is_before=is_before)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code in (_DONE, -signal.SIGKILL), code
    return code != _DONE


def _live(work: Callable[[], object], *, is_before: bool) -> None:
    """Do the work in a fork, which never returns."""
    code = _FAILED
    try:
        for connection in connections.all():
            _watch(connection, is_before=is_before)
        work()
        code = _DONE
    finally:
        os._exit(code)


def _watch(connection: BaseDatabaseWrapper, *, is_before: bool) -> None:
    """Let the first commit of a connection kill this process."""
    state = {"has_written": False}
    commit = connection._commit  # type: ignore[attr-defined]

    def write(execute: Any, sql: str, params: Any, many: Any, context: Any) -> Any:
        is_write = sql.lstrip().upper().startswith(_WRITES)
        if not is_write or connection.in_atomic_block:
            state["has_written"] |= is_write
            return execute(sql, params, many, context)
        return _around(is_before, lambda: execute(sql, params, many, context))

    def commit_all() -> Any:
        return _around(is_before, commit) if state["has_written"] else commit()

    connection.execute_wrappers.append(write)
    connection._commit = commit_all  # type: ignore[attr-defined]


def _around(is_before: bool, end: Callable[[], Any]) -> Any:
    """Die before or after a transaction ends."""
    if not is_before:
        end()
    os.kill(os.getpid(), signal.SIGKILL)
