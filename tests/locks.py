"""Who waits for whom in PostgreSQL."""

from django.db import connection

_WAITS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0
"""


def somebody_waits() -> bool:
    """Whether a session on this database waits for a lock of another.

    Within a transaction the list of sessions is otherwise the one of the first look.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute(_WAITS)
        return bool(cursor.fetchone()[0])
