"""An endpoint whose replicas run in a pool of local processes: its gateway reaches them alone."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from portal.config.env import read_env
from portal.config.relay import folder_of
from slipway.schemas.relay import RelayTarget
from tests.integration.pools.jobs import agents_of
from tests.integration.serving.living import Endpoints, Load, running_endpoints
from tests.processes import children_of, command_of, wait_for

pytestmark = [pytest.mark.integration, pytest.mark.thorough]
_POOL = {"name": "twin", "engine": "local", "settings": {"places": 3}}
_STARTS_WITHIN_S = 300.0
_LISTENS = "0A"


@pytest.fixture(scope="module")
def endpoints(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoints]:
    """Slipway with a gateway, a relay and a pool. The node of the installation takes no work."""
    folder = tmp_path_factory.mktemp("pool")
    with running_endpoints(folder, SLIPWAY_EMBEDDED_RELAY="true") as lab:
        lab.api.post("/pools", json=_POOL).raise_for_status()
        (node,) = lab.api.get("/nodes").json()["items"]
        lab.api.post(f"/nodes/{node['name']}/cordon", json={}).raise_for_status()
        yield lab


@pytest.fixture(scope="module")
def doubling(endpoints: Endpoints) -> str:
    """The name of an endpoint in the pool that multiplies by 2."""
    made = endpoints.create("doubling", endpoints.register(2, golden=2), pool="twin")
    assert made["pool"] == "twin"
    endpoints.until("doubling", 2, within_s=_STARTS_WITHIN_S)
    return "doubling"


def _replicas(endpoints: Endpoints, name: str, state: str = "ready") -> list[dict[str, Any]]:
    rows = endpoints.call("GET", f"endpoints/{name}/replicas")
    return [row for row in rows if row["state"] == state]


def _doors(endpoints: Endpoints) -> set[str]:
    environ = endpoints.running.installation.environ
    return {path.name for path in folder_of(read_env(environ, Path(os.devnull))).glob("*.sock")}


def _relay_of(endpoints: Endpoints) -> int:
    children = children_of(endpoints.running.program.pid)
    (pid,) = [pid for pid in children if "workers.relay" in command_of(pid)]
    return pid


def _node_count(endpoints: Endpoints) -> int:
    return len(endpoints.api.get("/nodes").json()["items"])


def test_a_replica_in_a_pool_is_reached_through_its_door(
    endpoints: Endpoints, doubling: str
) -> None:
    (replica,) = _replicas(endpoints, doubling)
    door = RelayTarget(workload_id=replica["workload"], epoch=1).door
    assert _doors(endpoints) == {door}
    assert _node_count(endpoints) == 2, "the node of the allocation and that of the installation"
    assert replica["node"]


def test_a_replica_in_a_pool_listens_on_no_port(endpoints: Endpoints, doubling: str) -> None:
    sockets = set()
    for agent in agents_of(endpoints.running):
        for pid in _descendants(agent):
            with contextlib.suppress(OSError):
                folder = Path(f"/proc/{pid}/fd")
                sockets |= {str(entry.readlink()) for entry in folder.iterdir()}
    assert any(link.startswith("socket:") for link in sockets)
    rows = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
    ]
    ports = [row[1] for row in rows if row[3] == _LISTENS and f"socket:[{row[9]}]" in sockets]
    assert ports == []


def _descendants(pid: int) -> list[int]:
    children = children_of(pid)
    return [pid, *(each for child in children for each in _descendants(child))]


def test_without_the_secret_a_door_gives_nothing(endpoints: Endpoints, doubling: str) -> None:
    environ = endpoints.running.installation.environ
    (door,) = folder_of(read_env(environ, Path(os.devnull))).glob("*.sock")
    transport = httpx.HTTPTransport(uds=str(door))
    with httpx.Client(transport=transport) as client, pytest.raises(httpx.TransportError):
        client.get("http://replica/invocations")
    assert endpoints.factor(doubling) == 2


def test_a_killed_relay_comes_back_and_predictions_with_it(
    endpoints: Endpoints, doubling: str
) -> None:
    os.kill(relay := _relay_of(endpoints), signal.SIGSTOP)
    os.kill(relay, signal.SIGKILL)

    def refusal() -> httpx.Response | None:
        answer = endpoints.ask(doubling)
        return answer if answer.status_code == 503 else None

    refused = wait_for(refusal, "refusal while there is no relay", within_s=30)
    assert refused is not None
    assert refused.json()["code"] == "no_replica"
    assert "relay" in refused.json()["detail"]
    assert int(refused.headers["Retry-After"]) >= 1
    endpoints.until(doubling, 2, within_s=60)
    wait_for(lambda: len(_replicas(endpoints, doubling)) == 1, "ready replica", within_s=60)
    shown = endpoints.show(doubling)
    assert shown["state"] == "serving"
    assert len(endpoints.call("GET", f"endpoints/{doubling}/replicas")) == 1, "none was replaced"


def test_two_replicas_share_the_load_and_a_preempted_one_is_replaced(
    endpoints: Endpoints, doubling: str
) -> None:
    endpoints.call("PATCH", f"endpoints/{doubling}", {"min_replicas": 2, "max_replicas": 2})
    wait_for(
        lambda: len(_replicas(endpoints, doubling)) == 2,
        "two ready replicas",
        within_s=_STARTS_WITHIN_S,
    )
    before = {row["id"] for row in _replicas(endpoints, doubling)}
    with Load(endpoints, doubling, clients=2) as load:
        # The signal of an engine that ends an allocation: preempted, or its time limit.
        os.kill(agents_of(endpoints.running)[0], signal.SIGTERM)
        wait_for(
            lambda: len({row["id"] for row in _replicas(endpoints, doubling)} - before) == 1,
            "replica in place of the preempted one",
            within_s=_STARTS_WITHIN_S,
        )
    assert set(load.statuses) == {200}, load.statuses
    (gone,) = before - {row["id"] for row in _replicas(endpoints, doubling)}
    rows = {row["id"]: row for row in endpoints.call("GET", f"endpoints/{doubling}/replicas")}
    assert "pool twin" in rows[gone]["reason"], rows[gone]


def test_a_rollout_in_the_pool_moves_the_traffic(endpoints: Endpoints, doubling: str) -> None:
    endpoints.call(
        "PATCH",
        f"endpoints/{doubling}",
        {"min_replicas": 1, "max_replicas": 1, "warm_minutes": 0},
    )
    tripling = endpoints.register(3, golden=3)
    with Load(endpoints, doubling, clients=1) as load:
        endpoints.promote(doubling, tripling)
        ended = endpoints.settled(doubling, within_s=_STARTS_WITHIN_S)
        endpoints.until(doubling, 3)
    assert ended["state"] == "done", ended
    assert set(load.statuses) == {200}, load.statuses


def test_a_full_pool_names_the_reason_of_its_engine(endpoints: Endpoints, doubling: str) -> None:
    endpoints.call("PATCH", f"endpoints/{doubling}", {"min_replicas": 4, "max_replicas": 4})

    def reasons() -> list[str]:
        return [row["reason"] for row in _replicas(endpoints, doubling, "starting")]

    wait_for(
        lambda: any("All 3 places" in reason for reason in reasons()),
        "reason of the engine",
        within_s=_STARTS_WITHIN_S,
    )


def test_a_stop_leaves_no_allocation(endpoints: Endpoints, doubling: str) -> None:
    endpoints.call("POST", f"endpoints/{doubling}/pause", {})

    def requests() -> int:
        number: int = endpoints.api.get("/pools/twin").json()["requests"]
        return number

    wait_for(lambda: requests() == 0, "end of the allocations", within_s=120)
    wait_for(lambda: _node_count(endpoints) == 1, "end of the nodes", within_s=60)
    wait_for(lambda: not _doors(endpoints), "end of the doors", within_s=60)
    assert agents_of(endpoints.running) == []
    assert endpoints.ask(doubling).json()["code"] == "endpoint_paused"
    refused = endpoints.api.delete("/pools/twin")
    assert (refused.status_code, refused.json()["code"]) == (409, "pool_in_use")
    endpoints.call("DELETE", f"endpoints/{doubling}")
    wait_for(lambda: endpoints.api.delete("/pools/twin").is_success, "removal", within_s=30)
