"""A PostgreSQL that is frozen, stopped or locked: a 503 in two seconds, and nothing afterwards."""

import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import httpx
import psycopg
import pytest

from tests.faults.live import Live
from tests.faults.private_postgres import PostgresServer, postgres_server
from tests.faults.requests_at_once import (
    WITHIN_S,
    check_unavailable,
    create_projects,
    create_projects_until_refused,
    send,
)
from tests.processes import Installation, wait_for

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.skipif(
        not os.environ.get("DATABASE_URL", "").startswith("postgres"), reason="SQLite has no server"
    ),
]


# Each test ends with a database that is back, so all of them share one, and one Slipway.
@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("away")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[PostgresServer]:
    with postgres_server(folder) as server:
        yield server


@pytest.fixture(scope="module")
def slipway(server: PostgresServer, folder: Path) -> Iterator[Live]:
    place = Installation(folder, server.url)
    live = Live(place)
    try:
        live.start(within_s=240)  # it makes all tables, which takes a busy machine a minute
        yield live
    finally:
        place.end()


def _check_away(slipway: Live, api: httpx.Client, prefix: str) -> None:
    """Ask in many ways while the database is away."""
    with httpx.Client(base_url=slipway.url, timeout=30) as browser:
        signed_in = {"Cookie": f"slipway_session={'a' * 32}"}
        check_unavailable([send(browser, "GET", "/", headers=signed_in)])
        check_unavailable(create_projects(api, 20, prefix))
        check_unavailable([send(api, "GET", "/projects")])
        bearer = {"Authorization": api.headers["Authorization"]}
        search = {"max_results": 1}
        tracking = "/mlflow/api/2.0/mlflow/experiments/search"
        check_unavailable([send(browser, "POST", tracking, json=search, headers=bearer)])
        create = "/mlflow/api/2.0/mlflow/experiments/create"
        check_unavailable([send(browser, "POST", create, json={"name": prefix}, headers=bearer)])
        ready = send(browser, "GET", "/readyz")
        assert ready.status == 503
        assert "database" in ready.text
        assert "reasons" in ready.text
        assert ready.seconds < WITHIN_S
        alive = send(browser, "GET", "/healthz")
        assert alive.status == 200
        assert alive.seconds < 1


def _check_back(slipway: Live, api: httpx.Client, prefix: str) -> None:
    """Nothing of what was refused is carried out, and new requests pass."""

    def passes() -> bool:
        return api.get("/projects").status_code == 200

    wait_for(passes, "answers again", within_s=5)
    name = f"{prefix} afterwards"
    wait_for(
        lambda: api.post("/projects", json={"name": name}).status_code == 201,
        "project",
        within_s=5,
    )
    assert _count_projects(slipway, prefix) == 1


def _count_projects(slipway: Live, prefix: str) -> int:
    with psycopg.connect(slipway.place.environ["DATABASE_URL"]) as connection:
        query = "SELECT count(*) FROM accounts_project WHERE name LIKE %s"
        row = connection.execute(query, [f"{prefix} %"]).fetchone()
        assert row is not None
        return int(row[0])


@pytest.mark.thorough
def test_requests_get_their_503_while_the_server_is_frozen(
    slipway: Live, server: PostgresServer
) -> None:
    with slipway.api() as api:
        assert api.get("/projects").status_code == 200
        with server.frozen():
            _check_away(slipway, api, "Frozen")
        _check_back(slipway, api, "Frozen")


@pytest.mark.thorough
def test_requests_under_way_when_the_server_freezes_are_done_or_refused(
    slipway: Live, server: PostgresServer
) -> None:
    prefix = f"Burst {secrets.token_hex(4)}"  # a second try counts its own projects
    with slipway.api() as api:
        replies = []
        burst = Thread(
            target=lambda: replies.extend(create_projects_until_refused(api, 20, prefix))
        )
        burst.start()
        wait_for(lambda: _count_projects(slipway, prefix), "first project of the burst")
        with server.frozen():
            began = time.monotonic()
            burst.join()
            # The wait for the thread itself takes its turn on a busy machine.
            assert time.monotonic() - began < WITHIN_S + 0.5
        _check_back(slipway, api, "Afterwards")
        done = [reply for reply in replies if reply.status == 201]
        assert {reply.status for reply in replies} == {201, 503}
        assert _count_projects(slipway, prefix) == len(done)


@pytest.mark.thorough
def test_requests_get_their_503_while_the_server_is_stopped(
    slipway: Live, server: PostgresServer
) -> None:
    with slipway.api() as api:
        assert api.get("/projects").status_code == 200
        with server.stopped():
            _check_away(slipway, api, "Stopped")
        _check_back(slipway, api, "Stopped")


def test_requests_get_their_503_while_a_table_is_locked(
    slipway: Live, server: PostgresServer
) -> None:
    with slipway.api() as api:
        assert api.get("/projects").status_code == 200
        with psycopg.connect(server.url) as other:
            other.execute("LOCK TABLE accounts_project")
            check_unavailable(create_projects(api, 20, "Locked"))
            alive = send(httpx.Client(base_url=slipway.url), "GET", "/healthz")
            assert alive.seconds < 1
            other.rollback()
        _check_back(slipway, api, "Locked")


@pytest.mark.thorough
def test_requests_queue_for_a_lock_that_others_hold_only_for_a_moment(
    slipway: Live, server: PostgresServer
) -> None:
    ended = Event()

    def take_turns() -> None:
        with psycopg.connect(server.url) as other:
            while not ended.is_set():
                other.execute("LOCK TABLE accounts_project; SELECT pg_sleep(0.2)")
                other.commit()

    with slipway.api() as api:
        others = [Thread(target=take_turns) for _ in range(4)]
        for thread in others:
            thread.start()
        try:
            replies = create_projects(api, 4, "Queued")
        finally:
            ended.set()
            for thread in others:
                thread.join()
        assert [reply.status for reply in replies] == [201] * 4, replies
