"""Fifty launches at once: each is taken in, runs, or waits and says for what."""

import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from tests.notebooks import COLLEAGUES, SERVERS
from tests.portals import RunningPortal
from tests.processes import wait_for

pytestmark = pytest.mark.integration

_EACH = 10
_OVER = ("stopped", "failed")


def _launch(client: httpx.Client, number: int) -> Any:
    body = {"name": f"crowd-{number}-{secrets.token_hex(3)}", "tier": "cpu-large"}
    key = {"Idempotency-Key": secrets.token_hex(8)}

    def accepted() -> Any:
        answer = client.post(SERVERS, json=body, headers=key)
        # On a slow machine the last of the crowd wait for the database longer than a request may.
        if answer.status_code == 503:
            assert answer.json()["code"].startswith("database_busy"), answer.text
            assert answer.headers["Retry-After"] == "1"
            return None
        assert answer.status_code == 201, answer.text
        return answer.json()

    return wait_for(accepted, "an accepted launch", within_s=60, every_s=1.0)


def _standing(client: httpx.Client) -> list[Any]:
    servers = client.get(SERVERS, params={"mine": "true", "limit": 100}).json()["items"]
    crowd = [server for server in servers if server["name"].startswith("crowd-")]
    return [server for server in crowd if server["state"] not in ("stopping", *_OVER)]


def _all_gone(clients: list[httpx.Client]) -> bool:
    """Ask all that stand to stop; whether none holds room any more that others wait for."""
    gone = True
    for client in clients:
        for server in _standing(client):
            # Who becomes ready at that moment says 409 or 503, and is asked again.
            client.post(f"{SERVERS}/{server['id']}/stop")
            gone = False
        servers = client.get(SERVERS, params={"mine": "true", "limit": 100}).json()["items"]
        crowd = [server for server in servers if server["name"].startswith("crowd-")]
        gone = gone and all(server["state"] in _OVER for server in crowd)
    return gone


@pytest.fixture
def clients(running: RunningPortal) -> Iterator[list[httpx.Client]]:
    """Five people, who stop what they launched."""
    with ExitStack() as leaving:
        api_clients = [leaving.enter_context(running.client(name)) for name in COLLEAGUES]
        yield api_clients
        wait_for(lambda: _all_gone(api_clients), "the end of the crowd", within_s=120, every_s=0.5)


@pytest.mark.thorough
def test_fifty_launches_at_once_all_run_or_wait_with_a_reason(clients: list[httpx.Client]) -> None:
    launches = [(client, number) for number in range(_EACH) for client in clients]
    with ThreadPoolExecutor(len(launches)) as pool:
        made = list(pool.map(lambda launch: _launch(*launch), launches))
    assert len({server["id"] for server in made}) == 50

    def one_is_ready() -> bool:
        return any(server["state"] == "ready" for client in clients for server in _standing(client))

    # The whole machine has room for one of them at a time.
    wait_for(one_is_ready, "the first of the crowd", within_s=120, every_s=0.5)
    standing = [server for client in clients for server in _standing(client)]
    waiting = [server for server in standing if server["state"] == "starting"]
    assert len(waiting) == 49, [server["state"] for server in standing]
    assert all(server["explanation"].startswith("Waiting") for server in waiting), waiting[0]
    ready = next(server for server in standing if server["state"] == "ready")
    owner = next(c for c in clients if any(server["id"] == ready["id"] for server in _standing(c)))
    owner.post(f"{SERVERS}/{ready['id']}/stop").raise_for_status()

    def another_is_ready() -> bool:
        now = [
            server
            for client in clients
            for server in _standing(client)
            if server["state"] == "ready"
        ]
        return any(server["id"] != ready["id"] for server in now)

    wait_for(another_is_ready, "the next of the crowd", within_s=120, every_s=0.5)
