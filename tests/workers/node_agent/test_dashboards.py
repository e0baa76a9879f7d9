"""The dashboard of a cluster, by a real agent: it starts when opened, and only with its token."""

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from slipway.schemas.agent import TaskKey
from tests.workers.fake_portal import Key, make_spec
from tests.workers.machines import Site, eventually
from tests.workers.node_agent.clusters import dashboard_packages, project
from workers.node_agent.folders import NodeFolders, handle_of

SCRIPT = """
import os, pathlib, time, ray
ray.init()
print("pid", os.getpid(), flush=True)
while not pathlib.Path("go-on").exists():
    time.sleep(0.01)
print("<end>")
"""
# What code of another project on the same node can do: look for ports, and ask without a token.
SEARCH = """
import http.client, pathlib, sys
ports = set()
for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
    address, state = line.split()[1], line.split()[3]
    if state == "0A" and address.startswith("0100007F"):
        ports.add(int(address.split(":")[1], 16))
for port in sorted(ports):
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        connection.request("GET", "/api/jobs/", headers={"Authorization": "Bearer guessed"})
        answer = connection.getresponse()
        print("port", answer.status, answer.read()[:20], flush=True)
    except (OSError, http.client.HTTPException):
        pass
print("<end>")
"""


def _path(site: Site, key: Key) -> Path:
    handle = handle_of(TaskKey(task_id=key[0], epoch=key[1]))
    return NodeFolders(site.machine.data_dir).dashboard(handle)


def ask(path: Path, text: str = "/", **headers: str) -> tuple[int, str]:
    """Send a request to the socket that only the agent reaches; return status and body."""
    lines = [f"GET {text} HTTP/1.1", "Host: localhost", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(60)
        connection.connect(str(path))
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        answer = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
    head, _, body = answer.partition("\r\n\r\n")
    return int(head.split()[1]), body


@contextmanager
def cluster(site: Site, files: dict[str, str], **env: str) -> Iterator[Key]:
    """Run a job with a cluster, whose script waits."""
    digest = site.portal.state.add_snapshot(files)
    variables = {"PYTHONPATH": "packages", "SLIPWAY_TOKEN": "slw_of_this_attempt", **env}
    spec = make_spec("python", "train.py", snapshot=digest, framework="ray", env=variables)
    key = site.portal.state.want(site.new_name(), spec)
    eventually(lambda: "pid" in site.portal.state.log_of(key, 0), within_s=60)
    yield key
    (site.machine.state(key).path.parent / "work" / "go-on").touch()
    assert site.end_of(key).reason == "completed"
    assert not _path(site, key).exists()


def test_it_starts_when_it_is_opened_and_gets_the_token(site: Site) -> None:
    with cluster(site, project(SCRIPT) | dashboard_packages()) as key:
        path = _path(site, key)
        assert path.stat().st_mode & 0o777 == 0o600
        folder = site.machine.state(key).path.parent
        assert not list(folder.rglob("dashboard.log")), "it runs although nobody opened it"
        status, body = ask(path, "/nodes?view=summary")
        assert status == 200, body
        assert re.fullmatch(r"/nodes\?view=summary rank=None 127\.0\.0\.1:\d+", body)
        assert [ask(path)[0] for _ in range(3)] == [200] * 3
        # A token of the request's own stands beside that of the cluster, and is refused.
        assert ask(path, Authorization="Bearer guessed")[0] == 401
        end = site.run_to_end(SEARCH)
        statuses = re.findall(r"port (\d+) b'no token'", site.whole_log(end))
        assert statuses == ["401"], "the port was not tried, or answered"


def test_a_request_that_is_none_ends_alone(site: Site) -> None:
    with cluster(site, project(SCRIPT) | dashboard_packages()) as key:
        path = _path(site, key)
        for junk in (b"\r\n\r\n", b"x" * (128 << 10), b"GET / HTTP/1.1\r\n"):
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(60)
                connection.connect(str(path))
                try:
                    connection.sendall(junk)
                    connection.shutdown(socket.SHUT_WR)
                    connection.recv(10)
                except ConnectionError:
                    pass
        assert ask(path)[0] == 200


@pytest.mark.parametrize(
    ("files", "env", "reason"),
    [
        ({}, {}, "Install ray[default]: write ray[default] instead of ray in its packages"),
        (dashboard_packages(), {"RAY_AUTH_MODE": "disabled"}, "served only with a token"),
        (dashboard_packages() | {"no-dashboard": ""}, {}, "the port is taken"),
    ],
)
def test_one_that_cannot_start_says_what_to_do(
    site: Site, files: dict[str, str], env: dict[str, str], reason: str
) -> None:
    with cluster(site, project(SCRIPT) | files, **env) as key:
        status, page = ask(_path(site, key))
        assert status == 503
        assert reason in page
