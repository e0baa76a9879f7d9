"""A SQLite file that is locked, missing or replaced while Slipway runs."""

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from tests.faults.live import Live
from tests.faults.requests_at_once import WITHIN_S, check_unavailable, create_projects, send
from tests.processes import installation, wait_for

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.skipif(
        os.environ.get("DATABASE_URL", "").startswith("postgres"), reason="about SQLite's files"
    ),
]
_SUFFIXES = ("", "-wal", "-shm")


def _database(live: Live) -> Path:
    return live.place.data_dir / "slipway.sqlite3"


@pytest.fixture(scope="module")
def unharmed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Yield a Slipway whose database stays where it is."""
    with installation(tmp_path_factory.mktemp("unharmed")) as place:
        slipway = Live(place)
        slipway.start()
        yield slipway


def _move(path: Path, to: Path) -> None:
    for suffix in _SUFFIXES:
        source = Path(f"{path}{suffix}")
        if source.exists():
            source.rename(f"{to}{suffix}")


def _passes(api: httpx.Client) -> bool:
    return api.get("/projects").status_code == 200


@pytest.mark.thorough
def test_requests_get_their_503_while_another_process_holds_the_lock(unharmed: Live) -> None:
    live = unharmed
    with live.api() as api, httpx.Client(base_url=live.url, timeout=30) as browser:
        with closing(sqlite3.connect(_database(live), isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            check_unavailable(create_projects(api, 20, "Locked"))
            form = {"login": "ada@example.org", "password": "not the right one"}
            page = browser.get("/account/login")
            token = page.cookies["slipway_csrf"]
            post = {
                "data": form | {"csrfmiddlewaretoken": token},
                "headers": {"Origin": live.url},
            }
            check_unavailable([send(browser, "POST", "/account/login", **post)])
            assert send(browser, "GET", "/healthz").status == 200
            other.execute("ROLLBACK")
        created = send(api, "POST", "/projects", json={"name": "Locked afterwards"})
        assert created.status == 201, created
        assert live.sql("SELECT count(*) FROM accounts_project WHERE name LIKE 'Locked %'") == 1


@pytest.mark.thorough
def test_requests_queue_for_a_lock_that_others_hold_only_for_a_moment(unharmed: Live) -> None:
    with unharmed.api() as api:
        replies = create_projects(api, 40, "Queued")
        assert [reply.status for reply in replies] == [201] * 40, replies


@pytest.mark.thorough
@pytest.mark.parametrize("way", ["missing", "replaced"])
def test_nothing_is_read_from_or_written_to_another_file(
    live: Live, tmp_path: Path, way: str
) -> None:
    database, away = _database(live), tmp_path / "away.sqlite3"
    with live.api() as api, httpx.Client(base_url=live.url, timeout=30) as browser:
        assert _passes(api)
        _move(database, away)
        if way == "replaced":
            shutil.copyfile(away, database)
        refused = create_projects(api, 5, "Away")
        refused.append(send(api, "GET", "/projects"))
        signed_in = {"Cookie": f"slipway_session={'a' * 32}"}
        refused.append(send(browser, "GET", "/", headers=signed_in))
        check_unavailable(refused)
        for reply in refused:
            assert "slipway.sqlite3" in reply.text
            assert "restore a backup" in reply.text
        assert f"database_{way}" in refused[0].text
        ready = send(browser, "GET", "/readyz")
        assert ready.status == 503
        assert ready.seconds < WITHIN_S
        assert "slipway.sqlite3" in ready.text
        assert send(browser, "GET", "/healthz").status == 200
        wait_for(lambda: f"database_{way}" in _log_of(live, "control"), "line of the worker")
        if way == "missing":
            assert not database.exists()
        for suffix in _SUFFIXES:
            Path(f"{database}{suffix}").unlink(missing_ok=True)
        _move(away, database)
        wait_for(lambda: _passes(api), "answers again", within_s=5)
        created = send(api, "POST", "/projects", json={"name": "Away afterwards"})
        assert created.status == 201, created
        assert live.sql("SELECT count(*) FROM accounts_project WHERE name LIKE 'Away %'") == 1
        assert _log_of(live, "control").count(f"database_{way}") == 1


def _log_of(live: Live, name: str) -> str:
    lines = live.program.text().splitlines()
    return "\n".join(line for line in lines if line.startswith(name))
