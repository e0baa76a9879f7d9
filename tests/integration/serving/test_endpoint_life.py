"""The life of an endpoint on real processes: created, promoted, broken, rolled back, cut off."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from tests.faults.requests_at_once import WITHIN_S, check_unavailable, send
from tests.integration.serving.living import Endpoints, Load, running_endpoints
from tests.processes import children_of, command_of, wait_for

pytestmark = pytest.mark.integration
# A replica starts cold on a machine that other tests keep busy.
STARTS_WITHIN_S = 150.0
CANARY = {"kind": "canary", "percents": [50], "bake_s": 1}


@pytest.fixture(scope="module")
def endpoints(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoints]:
    """A Slipway with a node and a gateway."""
    with running_endpoints(tmp_path_factory.mktemp("life")) as lab:
        yield lab


@pytest.fixture(scope="module")
def doubling(endpoints: Endpoints) -> str:
    """An endpoint that serves a registered model, which multiplies by 2; returns its name."""
    version = endpoints.register(2, golden=2)
    endpoints.create("doubling", version)
    endpoints.until("doubling", 2, within_s=STARTS_WITHIN_S)
    return "doubling"


def test_a_registered_model_answers_once_its_golden_predictions_came_back(
    endpoints: Endpoints, doubling: str
) -> None:
    shown = endpoints.show(doubling)
    assert (shown["state"], shown["replicas_ready"]) == ("serving", 1)
    # Other tests may have left a revision before it warm, and a replica that they killed.
    [serving] = [each["number"] for each in shown["revisions"] if each["weight"] == 100]
    replicas = endpoints.call("GET", f"endpoints/{doubling}/replicas")
    current = [each for each in replicas if each["revision"] == serving]
    [replica] = [each for each in current if each["state"] == "ready"]
    assert replica["workload"]
    assert replica["node"]
    tried = endpoints.call("POST", f"endpoints/{doubling}/try", {"request": {"inputs": [[1, 2]]}})
    assert (tried["status"], tried["answer"]["predictions"]) == (200, [[2.0, 4.0]])
    refused = endpoints.gateway.post(f"/v1/{doubling}/predict", json={"inputs": [[1, 2]]})
    assert refused.status_code == 401


@pytest.mark.thorough
def test_a_version_whose_golden_prediction_fails_gets_no_traffic(
    endpoints: Endpoints, doubling: str
) -> None:
    wrong = endpoints.register(7, golden=8)
    with Load(endpoints, doubling, clients=1) as load:
        endpoints.promote(doubling, wrong)
        ended = endpoints.settled(doubling, within_s=STARTS_WITHIN_S)
    assert ended["state"] == "rolled_back"
    assert "was expected" in ended["reason"]
    assert set(load.statuses) == {200}
    assert set(load.factors) == {2.0}


def test_promotes_and_rollbacks_under_load_fail_no_request(
    endpoints: Endpoints, doubling: str
) -> None:
    tripling = endpoints.register(3, golden=3)
    with Load(endpoints, doubling, clients=2) as load:
        endpoints.promote(doubling, tripling, **CANARY)
        ended = endpoints.settled(doubling, within_s=STARTS_WITHIN_S)
        assert ended["state"] == "done", ended
        endpoints.until(doubling, 3)
        took = []
        # Twenty times there and back, by rolling back and by promoting what is still warm.
        for _ in range(10):
            began = time.monotonic()
            endpoints.call("POST", f"endpoints/{doubling}/rollback", {"reason": "to see"})
            endpoints.until(doubling, 2)
            took.append(time.monotonic() - began)
            number = _revision_of(endpoints, doubling, tripling)
            plan = {"bake_s": 0}
            endpoints.call(
                "POST", f"endpoints/{doubling}/promote", {"revision": number, "plan": plan}
            )
            endpoints.until(doubling, 3)
            endpoints.settled(doubling)
    assert set(load.statuses) == {200}, load.statuses
    assert set(load.factors) == {2.0, 3.0}
    assert min(took) <= 1.0, took
    endpoints.call("POST", f"endpoints/{doubling}/rollback", {})
    endpoints.until(doubling, 2)


def _revision_of(endpoints: Endpoints, name: str, version: int) -> int:
    revisions = endpoints.show(name)["revisions"]
    return next(
        int(revision["number"]) for revision in revisions if revision["version"] == str(version)
    )


@pytest.mark.thorough
def test_a_replica_that_is_killed_is_replaced(endpoints: Endpoints, doubling: str) -> None:
    before = {replica["id"] for replica in endpoints.call("GET", f"endpoints/{doubling}/replicas")}
    # The model of these tests ends its own process at this input, as the kernel ends a process.
    answer = endpoints.ask(doubling, -666.0)
    assert (answer.status_code, answer.json()["code"]) == (502, "replica_lost")
    endpoints.until(doubling, 2, within_s=STARTS_WITHIN_S)
    replicas = endpoints.call("GET", f"endpoints/{doubling}/replicas")
    killed = [
        replica for replica in replicas if replica["id"] in before and replica["state"] == "failed"
    ]
    assert killed
    assert killed[0]["reason"]
    assert any(replica["id"] not in before and replica["state"] == "ready" for replica in replicas)


def _portal_pids(endpoints: Endpoints) -> list[int]:
    """Return the processes of the portal and of control, with what they have started."""
    pids = []
    for child in children_of(endpoints.running.program.pid):
        if any(mark in command_of(child) for mark in ("manage.py portal", "workers.control")):
            pids += [child, *children_of(child)]
    assert len(pids) >= 2
    return pids


def test_predictions_are_answered_while_the_portal_is_frozen_and_after_it_was_killed(
    endpoints: Endpoints, doubling: str
) -> None:
    pids = _portal_pids(endpoints)
    with Load(endpoints, doubling, clients=2) as load:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            frozen_at = sum(load.statuses.values())
            wait_for(
                lambda: sum(load.statuses.values()) > frozen_at + 500, "500 answers", within_s=60
            )
            stranger = endpoints.gateway.post(
                f"/v1/{doubling}/predict",
                json={"inputs": [[1, 2]]},
                headers={"Authorization": "Bearer sle_unknown"},
            )
            assert stranger.status_code == 401
        finally:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        # The supervisor starts both again, and they find everything as it was.
        wait_for(lambda: _shows(endpoints, doubling), "answer of the portal", within_s=90)
    assert set(load.statuses) == {200}, load.statuses
    assert endpoints.show(doubling)["state"] == "serving"


def _lock(server: psycopg.Connection[Any], tables: str) -> None:
    """Lock the tables, again where a transaction that holds one of them wants another one."""

    def is_locked() -> bool:
        try:
            server.execute(f"LOCK TABLE {tables} IN ACCESS EXCLUSIVE MODE")
        except psycopg.errors.DeadlockDetected:
            server.rollback()
            return False
        return True

    wait_for(is_locked, "locks of all tables", within_s=30)


@contextlib.contextmanager
def _database_away(endpoints: Endpoints) -> Iterator[None]:
    """Have nobody use the portal's tables for the duration of a block."""
    at = endpoints.running.installation
    if url := at.environ["DATABASE_URL"]:
        with psycopg.connect(url) as server:
            query = "SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = 'public'"
            tables = ", ".join(row[0] for row in server.execute(query))
            _lock(server, tables)
            yield
            server.rollback()
        return
    file = at.data_dir / "slipway.sqlite3"
    elsewhere = file.with_name("elsewhere.sqlite3")
    file.rename(elsewhere)
    yield
    elsewhere.rename(file)


def test_predictions_are_answered_while_the_database_is_away(
    endpoints: Endpoints, doubling: str
) -> None:
    """Also by a gateway that starts meanwhile, from the configuration on its disk."""
    before = {replica["id"] for replica in endpoints.call("GET", f"endpoints/{doubling}/replicas")}
    [gateway] = [
        pid
        for pid in children_of(endpoints.running.program.pid)
        if "workers.gateway" in command_of(pid)
    ]
    path = f"/v1/{doubling}/predict"
    unknown = {"Authorization": "Bearer sle_unknown"}
    with _database_away(endpoints):
        with Load(endpoints, doubling, clients=2) as load:
            wait_for(lambda: sum(load.statuses.values()) > 500, "500 answers", within_s=60)
        assert set(load.statuses) == {200}, load.statuses
        check_unavailable([send(endpoints.api, "GET", f"{endpoints.path}/endpoints/{doubling}")])
        stranger = send(endpoints.gateway, "POST", path, json={"inputs": [[1, 2]]}, headers=unknown)
        assert stranger.status == 401
        assert stranger.seconds < WITHIN_S
        os.kill(gateway, signal.SIGKILL)
        wait_for(lambda: _predicts(endpoints, doubling), "answer of another gateway", within_s=60)
    wait_for(lambda: _shows(endpoints, doubling), "answer of the portal", within_s=30)
    assert endpoints.show(doubling)["state"] == "serving"
    replicas = endpoints.call("GET", f"endpoints/{doubling}/replicas")
    assert {replica["id"] for replica in replicas} == before


def _predicts(endpoints: Endpoints, name: str) -> bool:
    try:
        return bool(endpoints.ask(name, 1.0).status_code == 200)
    except httpx.TransportError:
        return False


def _shows(endpoints: Endpoints, name: str) -> bool:
    try:
        return bool(endpoints.show(name))
    except Exception:  # noqa: BLE001  (it is starting: whatever it answers means not yet)
        return False


def test_paused_it_says_why_and_resumed_it_answers_again(
    endpoints: Endpoints, doubling: str
) -> None:
    endpoints.call("POST", f"endpoints/{doubling}/pause", {"reason": "Too dear."})
    wait_for(lambda: endpoints.ask(doubling).status_code == 503, "a refusal", within_s=30)
    assert "Too dear." in endpoints.ask(doubling).json()["detail"]
    endpoints.call("POST", f"endpoints/{doubling}/resume")
    endpoints.until(doubling, 2, within_s=STARTS_WITHIN_S)


def test_the_gateway_describes_it_and_predictions_reach_the_disk(
    endpoints: Endpoints, doubling: str
) -> None:
    key = {"Authorization": f"Bearer {endpoints.keys[doubling]}"}
    described = endpoints.gateway.get(f"/v1/{doubling}/openapi.json", headers=key).json()
    assert described["info"]["title"] == doubling
    folder: Path = endpoints.running.installation.data_dir
    wait_for(lambda: any(folder.rglob("predictions/**/*.parquet")), "Parquet", within_s=60)
