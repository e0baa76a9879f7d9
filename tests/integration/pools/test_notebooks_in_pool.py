"""A notebook server in a pool of local processes: from the click to a cell, through the relay."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from portal.config.env import read_env
from portal.config.relay import folder_of
from slipway.schemas.relay import RelayTarget
from tests.notebooks import PASSWORD, SERVERS, Person, notebook_of, running_notebooks
from tests.portals import RunningPortal
from tests.processes import children_of, command_of, wait_for

pytestmark = [pytest.mark.integration, pytest.mark.thorough]
_POOL = {"name": "twin", "engine": "local", "settings": {"places": 2}}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPortal]:
    """Slipway with a Hub, a relay and a pool. The node of the installation takes no work."""
    folder = tmp_path_factory.mktemp("pool")
    with running_notebooks(folder, SLIPWAY_EMBEDDED_RELAY="true") as portal:
        with portal.client("root") as root:
            root.post("/pools", json=_POOL).raise_for_status()
            (node,) = root.get("/nodes").json()["items"]
            root.post(f"/nodes/{node['name']}/cordon", json={}).raise_for_status()
        portal.program.wait_for_text("relay ready", within_s=120)
        yield portal


@pytest.fixture(scope="module")
def bob(running: RunningPortal) -> Person:
    """Somebody who works in the project."""
    return Person(running, "bob", PASSWORD)


@pytest.fixture(scope="module")
def server(bob: Person) -> str:
    """The id of a server in the pool, which is ready."""
    made = bob.launch("pooled", pool="twin")
    bob.wait_for(made, "ready", within_s=300)
    return made


def _folder(running: RunningPortal) -> Path:
    """Return the folder of the relay's sockets."""
    return folder_of(read_env(running.installation.environ, Path(os.devnull)))


def _target(person: Person, server: str) -> RelayTarget:
    return RelayTarget(workload_id=person.look(server)["workload"], epoch=1)


def _relay_of(running: RunningPortal) -> int:
    (pid,) = [pid for pid in children_of(running.program.pid) if "workers.relay" in command_of(pid)]
    return pid


def test_a_cell_runs_in_a_server_that_nobody_can_dial(
    running: RunningPortal, bob: Person, server: str
) -> None:
    shown = bob.look(server)
    assert shown["pool"] == "twin"
    desk = bob.open(server)
    assert desk.run(desk.kernel(), "print(6 * 7)").strip() == "42"
    assert "hello" in desk.type("echo hello")
    with running.client("root") as root:
        names = [node["name"] for node in root.get("/nodes").json()["items"]]
    assert len(names) == 2, "the node of the allocation and that of the installation"


def test_the_server_listens_on_no_port(running: RunningPortal, bob: Person, server: str) -> None:
    """The socket of its shim is the only way in, and the relay's leads there."""
    desk = bob.open(server)
    listening = desk.run(
        desk.kernel(),
        "import os, re\n"
        "folder = f'/proc/{os.getppid()}/fd'\n"
        "held = {os.readlink(f'{folder}/{name}') for name in os.listdir(folder)}\n"
        "rows = [line.split() for table in ('tcp', 'tcp6') "
        "for line in open(f'/proc/net/{table}').readlines()[1:]]\n"
        "print([row[1] for row in rows if row[3] == '0A' and f'socket:[{row[9]}]' in held])",
    )
    assert listening.strip() == "[]"
    door = _folder(running) / _target(bob, server).door
    assert door.stat().st_mode & 0o777 == 0o600


def test_a_large_file_comes_through_whole(bob: Person, server: str) -> None:
    desk = bob.open(server)
    assert desk.call("PUT", "contents/big.ipynb", json=notebook_of("x" * 3_000_000)).is_success
    content = desk.call("GET", "contents/big.ipynb").json()["content"]
    assert len(content["cells"][0]["source"]) == 3_000_000


def test_without_a_sign_in_a_door_gives_nothing(
    running: RunningPortal, bob: Person, server: str
) -> None:
    target = _target(bob, server)
    transport = httpx.HTTPTransport(uds=str(_folder(running) / target.door))
    base = bob.look(server)["url"].partition("://")[2].partition("/")[2].removesuffix("/lab")
    with httpx.Client(transport=transport) as client:
        answer = client.get(f"http://{target.address}/{base}/api/kernels")
        assert answer.status_code in (302, 401, 403), answer.text
        assert client.get(f"http://elsewhere/{base}/api/kernels").status_code == 421


def test_a_relay_that_was_killed_comes_back_with_the_server(
    running: RunningPortal, bob: Person, server: str
) -> None:
    desk = bob.open(server)
    kernel = desk.kernel()
    desk.run(kernel, "kept = 'still here'")
    os.kill(_relay_of(running), signal.SIGKILL)

    def answers() -> bool:
        with contextlib.suppress(httpx.TransportError):
            return desk.call("GET", f"kernels/{kernel}").is_success
        return False

    wait_for(answers, "the server through the new relay", within_s=60)
    assert desk.run(kernel, "print(kept)").strip() == "still here"


def _wait_for_the_last_node(running: RunningPortal) -> None:
    with running.client("root") as root:
        wait_for(
            lambda: len(root.get("/nodes").json()["items"]) == 1, "end of the node", within_s=60
        )


def test_a_server_that_stops_leaves_no_door_and_no_node(
    running: RunningPortal, bob: Person, server: str
) -> None:
    kept = notebook_of("kept")
    assert bob.open(server).call("PUT", "contents/kept.ipynb", json=kept).is_success
    door = _folder(running) / _target(bob, server).door
    bob.stop(server)
    wait_for(lambda: not door.exists(), "end of the door", within_s=60)
    _wait_for_the_last_node(running)
    # Its files are there when it starts again, on whatever place of the pool.
    bob.start(server)
    desk = bob.open(server)
    assert desk.call("GET", "contents/kept.ipynb").is_success
    # Without a portal, its agent would wait for it.
    bob.stop(server)
    _wait_for_the_last_node(running)


def test_a_pool_that_is_not_there_is_named(bob: Person) -> None:
    refused = bob.api.post(SERVERS, json={"name": "nowhere", "pool": "none"})
    assert refused.status_code == 422
    assert refused.json()["field"] == "pool"
