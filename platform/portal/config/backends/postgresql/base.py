"""Django's backend for PostgreSQL, with the rules of `portal.core.db_patience`."""

import select
import time
from collections import Counter
from typing import Any, Final

from django.db.backends.postgresql import base
from psycopg import IsolationLevel
from psycopg_pool import PoolTimeout

from portal.config.backends.postgresql.connection import PatientConnection
from portal.config.backends.postgresql.watch import Watch
from portal.core import db_patience
from portal.core.db_patience import SLICE_S, Patience

_watches: Final[dict[str, Watch]] = {}
# Number of connections returned to the pool: while it grows, waiting threads are served in turn.
_returned: Final[Counter[str]] = Counter()


class DatabaseWrapper(base.DatabaseWrapper):
    """A pooled connection. Acquiring it waits no longer than the request may wait."""

    def __init__(self, settings_dict: Any, alias: str = "default") -> None:
        if isinstance(pool := settings_dict["OPTIONS"].get("pool"), dict):
            pool["connection_class"] = PatientConnection
        super().__init__(settings_dict, alias)

    def get_new_connection(self, conn_params: Any) -> Any:
        """Acquire a live connection from the pool."""
        pool = self.pool
        if pool is None:
            return super().get_new_connection(conn_params)
        self.isolation_level = IsolationLevel.READ_COMMITTED
        pool.open()
        patience = db_patience.current()
        while True:
            connection = self._acquire(pool, patience)
            if not _has_pending_input(connection):
                connection.watch = self._watch(conn_params)
                return connection
            # An idle connection is only written to when the server ends it.
            connection.close()
            pool.putconn(connection)

    def _acquire(self, pool: Any, patience: Patience | None) -> Any:
        if patience is None:
            return pool.getconn()
        while True:
            before, began = _returned[self.alias], time.monotonic()
            try:
                return pool.getconn(timeout=SLICE_S)
            except PoolTimeout:
                progress = _returned[self.alias] != before
                patience.spend(time.monotonic() - began, progress=progress)

    def _watch(self, conn_params: Any) -> Watch:
        watch = _watches.get(self.alias)
        if watch is None:
            params = conn_params | {"application_name": "slipway watch", "autocommit": True}
            watch = _watches.setdefault(self.alias, Watch(lambda: self.Database.connect(**params)))
        return watch

    def _close(self) -> Any:
        had_connection = self.connection is not None
        try:
            return super()._close()  # type: ignore[misc]  # (its stubs leave it out)
        finally:
            if had_connection:
                _returned[self.alias] += 1


def _has_pending_input(connection: Any) -> bool:
    """Return whether something has arrived on an idle connection, or its socket is gone."""
    if connection.closed:
        return True
    poll = select.poll()
    poll.register(connection.pgconn.socket, select.POLLIN | select.POLLERR | select.POLLHUP)
    return bool(poll.poll(0))
