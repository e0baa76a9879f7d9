"""The database drops its connections, or all of them are in use: nobody is turned away for it."""

import os
from concurrent.futures import ThreadPoolExecutor

import httpx
import psycopg
import pytest

from tests.faults.live import Live
from tests.processes import wait_for

pytestmark = pytest.mark.skipif(
    not os.environ.get("DATABASE_URL", "").startswith("postgres"), reason="SQLite has no server"
)
_DROP = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
_WAIT_FOR_A_LOCK = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock'
"""
_CONNECTIONS_OF_THE_PORTAL = 16
_A_BURST_S = 7.0


def test_who_comes_in_a_burst_waits_for_a_connection(live: Live) -> None:
    with (
        live.api() as client,
        ThreadPoolExecutor(_CONNECTIONS_OF_THE_PORTAL + 1) as people,
        psycopg.connect(live.place.environ["DATABASE_URL"]) as busy,
        psycopg.connect(live.place.environ["DATABASE_URL"], autocommit=True) as onlooker,
    ):

        def all_connections_are_in_use() -> bool:
            row = onlooker.execute(_WAIT_FOR_A_LOCK).fetchone()
            return row is not None and row[0] >= _CONNECTIONS_OF_THE_PORTAL

        busy.execute("LOCK TABLE accounts_apitoken")
        for _ in range(_CONNECTIONS_OF_THE_PORTAL):
            people.submit(client.get, "/projects")
        wait_for(all_connections_are_in_use, "requests that hold all connections")
        late = people.submit(client.get, "/projects")
        with pytest.raises(TimeoutError):
            late.result(timeout=_A_BURST_S)
        busy.rollback()
        assert late.result(timeout=20).status_code == 200


def test_after_the_database_dropped_everybody_the_work_goes_on(live: Live) -> None:
    wait_for(lambda: live.beat_of() == "leads", "leader")
    with psycopg.connect(live.place.environ["DATABASE_URL"], autocommit=True) as connection:
        connection.execute(_DROP)
    wait_for(lambda: live.beat_of() == "leads", "leader again")
    wait_for(lambda: httpx.get(f"{live.url}/readyz").status_code == 200, "portal ready")
    live.queue_mails(3)
    live.wait_for_mails(3, within_s=15)
    assert "killed" not in live.program.text()
