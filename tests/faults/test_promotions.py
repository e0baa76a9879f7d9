"""Promotions of one model by several portals at once, and by one that dies in the middle."""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import httpx
import psycopg
import pytest

from tests.model_files import SOURCE, write_model
from tests.portals import RunningPortal, running_portal
from tests.processes import free_ports, wait_for

pytestmark = pytest.mark.postgres

VERSIONS = range(1, 7)
VERSION = {"source": SOURCE}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPortal]:
    """A portal that may be killed."""
    with running_portal(tmp_path_factory.mktemp("promotions")) as portal:
        yield portal


def client_at(running: RunningPortal, url: str, model: str) -> httpx.Client:
    """A client of Alice's for the versions of a model, at one of the portals."""
    headers = {"Authorization": f"Bearer {running.tokens['alice']}"}
    base = f"{url}/api/v1/projects/race/models/{model}"
    return httpx.Client(base_url=base, headers=headers, timeout=60)


@pytest.fixture(scope="module")
def project(running: RunningPortal) -> str:
    """A project to promote in."""
    with running.client("alice") as alice:
        made = alice.post("/projects", json={"name": "Race", "slug": "race"})
        made.raise_for_status()
    write_model(running.installation.data_dir / "artifacts", made.json()["id"])
    return "race"


def aliases_at(client: httpx.Client) -> dict[str, int]:
    """Return the aliases of the model a client is for, as MLflow's tables have them."""
    answer = client.get(str(client.base_url).rstrip("/"))
    answer.raise_for_status()
    aliases: dict[str, int] = answer.json()["aliases"]
    return aliases


@pytest.mark.thorough
def test_portals_that_promote_at_once_write_one_line_of_history(
    running: RunningPortal, project: str
) -> None:
    (port,) = free_ports(1)
    second = running.installation.start("manage.py", "portal", SLIPWAY_PORTAL_PORT=str(port))
    urls = [running.url, f"http://127.0.0.1:{port}"]
    wait_for(lambda: _answers(urls[1]), "answer of the second portal", within_s=60)
    clients = [client_at(running, urls[at % 2], "digits") for at in VERSIONS]
    for client in clients:
        client.post("/versions", json=VERSION).raise_for_status()
    together = threading.Barrier(len(clients))
    lost: list[str] = []

    def promote(client: httpx.Client, version: int) -> None:
        together.wait()
        while True:
            answer = client.post(f"/versions/{version}/promote", json={"alias": "champion"})
            if answer.status_code == 201:
                return
            lost.append(answer.json()["code"])

    threads = [
        threading.Thread(target=promote, args=(client, version))
        for client, version in zip(clients, VERSIONS, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(lost) <= {"promotion_lost"}
    moves = clients[0].get("/history").json()["items"][::-1]
    assert [move["sequence"] for move in moves] == [*VERSIONS]
    assert sorted(move["version"] for move in moves) == [*VERSIONS]
    # Each step starts where the one before ended.
    assert [move["replaced"] for move in moves[1:]] == [move["version"] for move in moves[:-1]]
    assert [aliases_at(client) for client in clients] == [{"champion": moves[-1]["version"]}] * len(
        clients
    )
    second.end()


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/healthz", timeout=2).is_success
    except httpx.TransportError:
        return False


@contextmanager
def mlflow_held_up(running: RunningPortal) -> Iterator[None]:
    """Let nobody write into MLflow's tables for the duration of a block."""
    url = running.installation.environ["DATABASE_URL"]
    if url:
        with psycopg.connect(url) as server:
            server.execute("SET search_path TO mlflow, public")
            server.execute("LOCK TABLE registered_model_aliases IN EXCLUSIVE MODE")
            yield
            server.rollback()
        return
    path = running.installation.data_dir / "mlflow.db"
    with closing(sqlite3.connect(path, isolation_level=None, timeout=20)) as file:
        file.execute("BEGIN IMMEDIATE")
        yield
        file.execute("ROLLBACK")


@contextmanager
def looking_for_moves(running: RunningPortal) -> Iterator[Callable[[str], Any]]:
    """Yield a look from outside at how many moves to a target have been committed."""
    question = "SELECT count(*) FROM registry_move WHERE target = {}"
    url = running.installation.environ["DATABASE_URL"]
    if url:
        with psycopg.connect(url, autocommit=True) as server:
            yield lambda target: server.execute(question.format("%s"), [target]).fetchone()[0]  # type: ignore[index]
        return
    path = running.installation.data_dir / "slipway.sqlite3"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5)) as file:
        yield lambda target: file.execute(question.format("?"), [target]).fetchone()[0]


@pytest.mark.thorough
def test_a_portal_killed_before_mlflow_knew_loses_no_move(
    running: RunningPortal, project: str
) -> None:
    with client_at(running, running.url, "letters") as client:
        client.post("/versions", json=VERSION).raise_for_status()
        with mlflow_held_up(running), looking_for_moves(running) as moves:
            asking = threading.Thread(target=_promote, args=(client,))
            asking.start()
            wait_for(lambda: moves("killed"), "committed move", within_s=30)
            running.kill()
            asking.join()
        running.restart()
        assert [move["target"] for move in client.get("/history").json()["items"]] == ["killed"]
        assert aliases_at(client) == {}
        plan = client.get("/versions/1/plan", params={"alias": "killed"}).json()
        assert plan["sentence"] == "Version 1 of letters is already at the alias killed."
        assert aliases_at(client) == {"killed": 1}


def _promote(client: httpx.Client) -> None:
    try:
        client.post("/versions/1/promote", json={"alias": "killed"})
    except httpx.TransportError:
        return  # the portal was killed before it could answer
