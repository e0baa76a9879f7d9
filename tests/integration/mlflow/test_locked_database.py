"""MLflow's server while another process holds a lock on its database."""

import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager

import psycopg
import pytest

from tests.faults.requests_at_once import Reply, check_unavailable, send
from tests.tracking import TrackingPortal
from tests.turns import thorough_after

pytestmark = pytest.mark.integration
_CREATE = "/api/2.0/mlflow/experiments/create"


@contextmanager
def _locked(tracking: TrackingPortal) -> Iterator[None]:
    """Let nobody write into MLflow's tables for the duration of a block."""
    at = tracking.portal.installation
    if url := at.environ["DATABASE_URL"]:
        with psycopg.connect(url) as server:
            server.execute("SET search_path TO mlflow, public")
            server.execute("LOCK TABLE experiments IN EXCLUSIVE MODE")
            yield
            server.rollback()
        return
    with closing(sqlite3.connect(at.data_dir / "mlflow.db", isolation_level=None)) as file:
        file.execute("BEGIN IMMEDIATE")
        yield
        file.execute("ROLLBACK")


def _create(tracking: TrackingPortal, count: int, prefix: str) -> list[Reply]:
    client = tracking.client("alice").http
    with ThreadPoolExecutor(count) as threads:
        return list(
            threads.map(
                lambda number: send(client, "POST", _CREATE, json={"name": f"{prefix} {number}"}),
                range(count),
            )
        )


def test_writes_get_their_503_in_time_and_are_not_carried_out(tracking: TrackingPortal) -> None:
    assert _create(tracking, 1, "First")[0].status == 200
    with _locked(tracking):
        check_unavailable(_create(tracking, 8, "Locked"))
    replies = _create(tracking, 1, "Free")
    assert [reply.status for reply in replies] == [200], replies
    listed = tracking.client("alice").post("experiments/search", {"max_results": 1000})
    names = {experiment["name"] for experiment in listed["experiments"]}
    assert "Free 0" in names
    assert not any(name.startswith("Locked") for name in names), names


@contextmanager
def _away(tracking: TrackingPortal) -> Iterator[None]:
    """Have nobody open MLflow's tables for the duration of a block."""
    at = tracking.portal.installation
    if url := at.environ["DATABASE_URL"]:
        with psycopg.connect(url) as server:
            server.execute("SET search_path TO mlflow, public")
            server.execute("LOCK TABLE alembic_version, experiments IN ACCESS EXCLUSIVE MODE")
            yield
            server.rollback()
        return
    file, elsewhere = at.data_dir / "mlflow.db", at.data_dir / "mlflow.db.moved"
    file.rename(elsewhere)
    yield
    elsewhere.rename(file)


@pytest.mark.parametrize("obstacle", thorough_after(1, [_locked, _away]))
def test_the_first_requests_after_a_start_get_their_503_in_time(
    tracking: TrackingPortal, obstacle: Callable[[TrackingPortal], AbstractContextManager[None]]
) -> None:
    """MLflow opens its database at the first request, and would repeat that for minutes."""
    prefix = obstacle.__name__
    tracking.server.end()
    tracking.server = tracking.start_server()
    with obstacle(tracking):
        check_unavailable(_create(tracking, 8, prefix))
        check_unavailable(_create(tracking, 1, f"{prefix} again"))
    replies = _create(tracking, 8, f"Free of {prefix}")
    assert [reply.status for reply in replies] == [200] * 8, replies
    listed = tracking.client("alice").post("experiments/search", {"max_results": 1000})
    names = {experiment["name"] for experiment in listed["experiments"]}
    assert not any(name.startswith(prefix) for name in names), names


def test_writes_queue_for_a_lock_that_others_hold_only_for_a_moment(
    tracking: TrackingPortal,
) -> None:
    replies = _create(tracking, 32, "Queued")
    assert [reply.status for reply in replies] == [200] * 32, replies
