"""Idempotency keys among real processes: two at once, and one that dies before it answers."""

import json
import os
import select
import signal
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import psycopg
import pytest

from tests.portals import RunningPortal, running_portal
from tests.processes import free_ports, wait_for

pytestmark = pytest.mark.postgres

ATTEMPTS = 60


@pytest.fixture(scope="module")
def portal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPortal]:
    """A portal that may be killed."""
    with running_portal(tmp_path_factory.mktemp("portal")) as running:
        yield running


@contextmanager
def _looking_for(portal: RunningPortal, key: str) -> Iterator[Callable[[], bool]]:
    """Yield a quick look from outside whether the record of a key has been committed."""
    question = "SELECT 1 FROM api_idempotencyrecord WHERE key = {}"
    url = portal.installation.environ["DATABASE_URL"]
    if url:
        with psycopg.connect(url, autocommit=True) as server:
            yield lambda: server.execute(question.format("%s"), [key]).fetchone() is not None
        return
    path = portal.installation.data_dir / "slipway.sqlite3"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5)) as file:
        yield lambda: file.execute(question.format("?"), [key]).fetchone() is not None


def _body(name: str) -> bytes:
    return json.dumps({"name": name}).encode()


def _send(portal: RunningPortal, key: str, name: str) -> socket.socket:
    """Send a POST and do not read the answer."""
    body = _body(name)
    head = (
        f"POST /api/v1/projects HTTP/1.1\r\nHost: localhost:{portal.address[1]}\r\n"
        f"Authorization: Bearer {portal.tokens['alice']}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        f"Idempotency-Key: {key}\r\n\r\n"
    )
    connection = socket.create_connection(portal.address, timeout=20)
    connection.sendall(head.encode() + body)
    return connection


def _freeze_between_commit_and_answer(portal: RunningPortal, key: str, name: str) -> bool:
    """Stop the process once the commit is seen; tells whether it had not answered yet."""
    with _looking_for(portal, key) as committed, _send(portal, key, name) as connection:
        deadline = time.monotonic() + 20
        while not committed():  # no pause: the window is a few milliseconds wide
            assert time.monotonic() < deadline, "nothing was committed"
        os.kill(portal.program.pid, signal.SIGSTOP)
        wait_for(lambda: _is_stopped(portal.program.pid), "stopped process")
        answered, _, _ = select.select([connection], [], [], 0.05)
        if answered:
            os.kill(portal.program.pid, signal.SIGCONT)
            assert connection.recv(65_536).startswith(b"HTTP/1.1 201")
            return False
        portal.kill()
        return True


def _is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


@pytest.mark.thorough
def test_a_portal_killed_between_commit_and_answer_gives_the_same_answer_afterwards(
    portal: RunningPortal,
) -> None:
    for attempt in range(ATTEMPTS):
        key, name = f"killed-{attempt}", f"Killed {attempt}"
        if _freeze_between_commit_and_answer(portal, key, name):
            break
    else:
        raise AssertionError(f"it answered first {ATTEMPTS} times")
    portal.restart()
    headers = {"Idempotency-Key": key, "Content-Type": "application/json"}
    with portal.client("alice", **headers) as alice:
        answer, again = (alice.post("/projects", content=_body(name)) for _ in range(2))
        listed = alice.get("/projects", params={"q": name}).json()["items"]
    assert answer.status_code == 201
    assert answer.headers["Idempotent-Replayed"] == "true"
    assert again.content == answer.content
    assert [project["id"] for project in listed if project["name"] == name] == [answer.json()["id"]]


@pytest.mark.thorough
def test_many_requests_with_one_key_at_two_processes_have_one_effect(
    portal: RunningPortal,
) -> None:
    [second_port] = free_ports(1)
    second = portal.installation.start("manage.py", "portal", SLIPWAY_PORTAL_PORT=str(second_port))
    urls = [portal.url, f"http://127.0.0.1:{second_port}"]

    def is_up() -> bool:
        assert second.process.poll() is None, second.text()
        try:
            return httpx.get(f"{urls[1]}/healthz").is_success
        except httpx.TransportError:
            return False

    wait_for(is_up, "answer of the second portal", within_s=60)
    headers = {"Authorization": f"Bearer {portal.tokens['bob']}", "Idempotency-Key": "together"}

    def ask(number: int) -> httpx.Response:
        url = f"{urls[number % 2]}/api/v1/projects"
        return httpx.post(url, json={"name": "Together"}, headers=headers, timeout=60)

    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(ask, range(24)))
    second.end()
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.content for answer in answers}) == 1
    assert sum("Idempotent-Replayed" not in answer.headers for answer in answers) == 1
    with portal.client("bob") as bob:
        listed = bob.get("/projects", params={"q": "Together"}).json()["items"]
        events = bob.get("/audit", params={"verb": "project.create"}).json()["items"]
    assert len(listed) == 1
    assert [event["target_label"] for event in events] == ["together"]
