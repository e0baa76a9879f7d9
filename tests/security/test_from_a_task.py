"""What a job and a cell get from the platform's own services, with no token and with their own.

The probe runs as user code. It finds listening ports and sockets in /proc as an attacker would, and
tries those of this installation. ANSWERS names all that answers, and why it may.
"""

import json
import re
import secrets
from typing import Any

import pytest

from tests.jobs import Jobs
from tests.security.test_internal_services import (
    World,
    _descendants,
    _ports_of,
    _unix_paths,
    world,
)

__all__ = ["world"]
pytestmark = [pytest.mark.slow, pytest.mark.integration]

PROBE = r"""
import http.client, json, os, re, socket

PORTS, SOCKETS, ROUTES = TARGETS
TOKENS = re.compile(rb"slp_[A-Za-z0-9_-]{40}")


def listening():
    ports = set()
    for table in ("tcp", "tcp6"):
        with open(f"/proc/net/{table}") as file:
            for line in file.readlines()[1:]:
                fields = line.split()
                if fields[3] == "0A":
                    ports.add(int(fields[1].rpartition(":")[2], 16))
    return ports


def send(port, data):
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            connection.settimeout(2)
            connection.sendall(data)
            return connection.recv(4096).decode(errors="replace")
    except OSError as error:
        return type(error).__name__


def ask(port, method, path, headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request(method, path, b"" if method == "GET" else b"{}", headers)
        answer = connection.getresponse()
        body = answer.read(4096).decode(errors="replace")
        return [answer.status, body or answer.getheader("Location") or ""]
    except (OSError, http.client.HTTPException) as error:
        return [0, type(error).__name__]
    finally:
        connection.close()


def connect(path):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(socket.AF_UNIX, kind) as client:
            try:
                client.connect(path)
            except OSError:
                continue
            return True
    return False


def tokens_in_memory():
    tokens = set()
    with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", 0) as memory:
        for line in maps.readlines():
            span, rights = line.split()[:2]
            if not rights.startswith("r") or "[v" in line:
                continue
            begin, end = (int(part, 16) for part in span.split("-"))
            try:
                memory.seek(begin)
                found = TOKENS.findall(memory.read(min(end - begin, 1 << 28)))
            except (OSError, OverflowError, ValueError):
                continue
            tokens.update(token.decode() for token in found)
    return sorted(tokens)


own = {name: os.environ[name] for name in ("SLIPWAY_TOKEN", "JUPYTERHUB_API_TOKEN")
       if os.environ.get(name)}
credentials = {"none": {}, "guessed": {"Authorization": "Bearer slipway"}}
for name, token in own.items():
    credentials[f"{name} as bearer"] = {"Authorization": f"Bearer {token}"}
    credentials[f"{name} as token"] = {"Authorization": f"token {token}"}
seen = listening()
answer = {
    "hidden": sorted(set(PORTS) - seen),
    "roots": {port: ask(port, "GET", "/", {}) for port in PORTS},
    "pings": {port: send(port, b"PING\r\n") for port in PORTS},
    "guesses": {port: send(port, b"AUTH slipway\r\nKEYS *\r\n") for port in PORTS},
    "routes": [
        [port, path, name, *ask(port, method, path, headers)]
        for port, method, path in ROUTES
        for name, headers in credentials.items()
    ],
    "sockets": [path for path in SOCKETS if connect(path)],
    "own": own,
    "memory": tokens_in_memory(),
}
print("probed", json.dumps(answer), flush=True)
print("<end>", flush=True)
"""
# Internal routes. No token of a task opens any of them.
_ROUTES = {
    "portal_port": (
        ("GET", "/metrics"),
        ("GET", "/api/agent/v1/desired"),
        ("POST", "/api/agent/v1/heartbeat"),
        ("POST", "/api/agent/v1/join"),
        ("GET", "/api/gateway/v1/snapshot"),
        ("POST", "/api/gateway/v1/reports"),
        ("GET", "/api/hub/v1/servers"),
        ("GET", "/api/v1/audit"),
        ("GET", "/api/v1/users"),
    ),
    "control_health_port": (("GET", "/metrics"),),
    "gateway_port": (("GET", "/metrics"), ("GET", "/stats"), ("POST", "/v1/any/predict")),
    "relay_port": (("GET", "/relay"),),
    "notebooks_proxy_port": (("GET", "/api/routes"), ("POST", "/api/routes/x")),
    "notebooks_hub_port": (
        ("GET", "/hub/api/users"),
        ("GET", "/hub/api/services"),
        ("GET", "/hub/api/proxy"),
        ("POST", "/hub/api/shutdown"),
        ("GET", "/hub/metrics"),
    ),
}
# A redirect without a body, to a page that asks who one is.
SIGN_IN = re.compile(r"^[^<]*/login(\?[^<]*)?$")
REDIRECT = re.compile(r"[^<\s]*")
_REFUSED = (401, 403, 404, 405, 421, 422)
# What answers `GET /` without a credential, and with what.
ANSWERS = {
    "portal_port": (302, "the sign-in page"),
    "notebooks_port": (302, "the sign-in page of the Hub"),
    "notebooks_hub_port": (302, "the sign-in page of the Hub"),
}


def _probe(world: World) -> str:
    settings = world.settings
    routes = [
        (getattr(settings, name), method, path)
        for name, requests in _ROUTES.items()
        for method, path in requests
    ]
    targets = (_ports_of(_descendants(world)), _unix_paths(world), routes)
    return PROBE.replace("TARGETS", repr(targets), 1)


def _answer(text: str) -> dict[str, Any]:
    lines = re.findall(r"^probed (\{.*\})$", text, re.MULTILINE)
    assert lines, text
    answer: dict[str, Any] = json.loads(lines[-1])
    return answer


def _check(world: World, answer: dict[str, Any], *, own_sockets: list[str]) -> None:
    settings = world.settings
    assert answer["hidden"] == [], "the probe saw every port"
    expected = {getattr(settings, name): status for name, (status, _) in ANSWERS.items()}
    for port, (status, body) in answer["roots"].items():
        allowed = expected.get(int(port), 0)
        assert status in (0, allowed, *_REFUSED), (port, status, body)
        assert status != 302 or REDIRECT.fullmatch(body), (port, body)
    for kind in ("pings", "guesses"):
        for port, text in answer[kind].items():
            assert "PONG" not in text, (kind, port, text)
            assert "slipway" not in text.lower() or text.startswith("HTTP/"), (kind, port, text)
    redis = str(settings.redis_port)
    assert answer["pings"][redis].startswith("-NOAUTH")
    assert answer["guesses"][redis].startswith("-WRONGPASS")
    opened = [
        route
        for route in answer["routes"]
        if route[3] not in _REFUSED and not (route[3] == 302 and SIGN_IN.search(route[4]))
    ]
    assert not opened, json.dumps(opened)
    assert answer["sockets"] == own_sockets
    known = {"SLIPWAY_TOKEN": answer["own"].get("SLIPWAY_TOKEN", "")} | answer["own"]
    assert known["SLIPWAY_TOKEN"]
    everybody = set(world.running.tokens.values())
    assert not everybody & set(answer["memory"])
    with world.running.client() as api:
        for token in answer["memory"]:
            if token in known.values():
                continue
            headers = {"Authorization": f"Bearer {token}"}
            assert api.get("/whoami", headers=headers).status_code == 401, token[:12]


def test_a_cell_of_a_notebook(world: World) -> None:
    # By this one a task speaks to its own supervisor. The server of the cell is the only task.
    own = [path for path in _unix_paths(world) if path.endswith("/s")]
    assert len(own) == 1
    answer = _answer(world.desk.run(world.kernel, _probe(world), within_s=300))
    _check(world, answer, own_sockets=own)
    # The token there is that of the person who works with the server.
    with world.running.client() as api:
        headers = {"Authorization": f"Bearer {answer['own']['SLIPWAY_TOKEN']}"}
        person = api.get("/whoami", headers=headers)
    bob = world.desk.person.api.get("/whoami").json()["user"]["id"]
    assert person.json()["user"]["id"] == bob


def test_a_job_of_another_project(world: World) -> None:
    api = world.running.client("root")
    name = f"Probe {secrets.token_hex(2)}"
    project = api.post("/projects", json={"name": name}).json()["slug"]
    jobs = Jobs(api, project=project)
    job = jobs.submit(_probe(world))
    assert jobs.end_of(job, within_s=300)["state"] == "succeeded", jobs.log(job)[-3000:]
    _check(world, _answer(jobs.whole_log(job)), own_sockets=[])
