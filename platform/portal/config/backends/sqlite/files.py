"""File of a SQLite database: never created by accident, never replaced by another one."""

import threading
from pathlib import Path
from typing import Final

import structlog

from portal.core.db_patience import DatabaseMissing

log = structlog.get_logger(__name__)
_Identity = tuple[int, int]


class _Files:
    """The files that this process has opened, by path."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._identities: dict[str, _Identity] = {}
        self._lost: set[str] = set()
        self.may_create = False

    def check(self, path: str) -> None:
        """Raise DatabaseMissing when a file is missing, or is not the one that was opened first."""
        if self.may_create:
            return
        try:
            status = Path(path).stat()
        except OSError:
            self._note_lost(path, is_replaced=False)
            raise DatabaseMissing(Path(path).name, is_replaced=False) from None
        identity = (status.st_dev, status.st_ino)
        known = self._identities.get(path)
        if known is None:
            with self._lock:
                known = self._identities.setdefault(path, identity)
        if known != identity:
            self._note_lost(path, is_replaced=True)
            raise DatabaseMissing(Path(path).name, is_replaced=True)
        if path in self._lost:
            self._log_recovery(path)

    def _note_lost(self, path: str, *, is_replaced: bool) -> None:
        with self._lock:
            is_news = path in self._identities and path not in self._lost
            self._lost.add(path)
        # A program that finds no file at its start reports it itself.
        if is_news:
            log.error(
                "database_replaced" if is_replaced else "database_missing",
                file=path,
                next_step="Stop Slipway and put the file back, or restore a backup.",
            )

    def _log_recovery(self, path: str) -> None:
        with self._lock:
            is_news = path in self._lost
            self._lost.discard(path)
        if is_news:
            log.info("database_restored", file=path)


files: Final = _Files()


def allow_creation() -> None:
    """Allow this process to create a missing database file: a first set-up, or a restore."""
    files.may_create = True
