"""Internal services: what a process of the machine gets from each without a credential.

Jobs and notebooks run on the same machine, often as the same user. SERVICES has one line for each
process of an installation, and one for each that the node starts. A process without a line fails
here, and so does a listening socket that no line names.
"""

import json
import os
import re
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
import zmq

from portal.config import local_node, notebooks, up
from portal.config.env import Env, read_env
from tests.notebooks import PASSWORD, OpenDesk, Person, running_notebooks
from tests.portals import RunningPortal
from tests.processes import children_of, command_of, wait_for

# All of them need a whole installation with a notebook.
pytestmark = pytest.mark.thorough
_LISTENING = "0A"
_HTTP_REFUSED = (401, 403)
_PARTS = ("NODE", "GATEWAY", "NOTEBOOKS", "TRACKING", "RELAY")


@dataclass
class World:
    """A whole Slipway, with the address of each internal service."""

    running: RunningPortal
    desk: OpenDesk
    kernel: str
    settings: Env = field(init=False)

    def __post_init__(self) -> None:
        self.settings = read_env(self.running.installation.environ, Path(os.devnull))

    @property
    def data_dir(self) -> Path:
        """The data folder."""
        return self.running.installation.data_dir

    @property
    def kernel_pid(self) -> int:
        """The process of the kernel."""
        pids = [pid for pid in _descendants(self) if "/lab/kernel.py" in command_of(pid)]
        assert len(pids) == 1
        return pids[0]

    @property
    def lab(self) -> int:
        """The process of the notebook server, which started the kernel."""
        return _parent_of(self.kernel_pid)

    @property
    def shim(self) -> int:
        """The process that supervises the notebook server."""
        return _parent_of(self.lab)

    def get(self, port: int, path: str, **options: Any) -> httpx.Response:
        """Send a request without any credential to a loopback port."""
        method = options.pop("method", "GET")
        return httpx.request(method, f"http://127.0.0.1:{port}{path}", timeout=20, **options)


def _http(port: Callable[[World], int], *open_paths: str, closed: dict[str, str]) -> "Check":
    """Check an HTTP service: `open_paths` answer 200, `closed` are paths and their methods."""

    def check(world: World) -> None:
        for path in open_paths:
            assert world.get(port(world), path).status_code == 200, path
        for path, method in closed.items():
            content = b"" if method == "GET" else b"{}"
            answer = world.get(port(world), path, method=method, content=content)
            assert answer.status_code in _HTTP_REFUSED, (path, answer.status_code, answer.text)

    return check


Check = Callable[[World], None]


def _redis(world: World) -> None:
    port = world.settings.redis_port
    for command in (
        "PING",
        "INFO",
        "KEYS *",
        "CONFIG GET requirepass",
        "CLIENT LIST",
        "EVAL 'return 1' 0",
        "SUBSCRIBE x",
        "AUTH wrong",
        "AUTH default wrong",
        "HELLO 3",
    ):
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            connection.sendall(f"{command}\r\n".encode())
            answer = connection.recv(4096)
        assert answer.startswith((b"-NOAUTH", b"-WRONGPASS")), (command, answer)


def _tracking(world: World) -> None:
    path = world.data_dir / "tracking.sock"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o077 == 0
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), timeout=20) as client:
        for target in ("/health", "/version", "/api/2.0/mlflow/experiments/search?max_results=1"):
            assert client.get(f"http://tracking{target}").status_code == 401, target


def _control(world: World) -> None:
    port = world.settings.control_health_port
    assert world.get(port, "/healthz").text == "ok\n"
    assert world.get(port, "/readyz").json().keys() == {"ready"}
    assert world.get(port, "/metrics").status_code == 401


def _agent(world: World) -> None:
    """It has a datagram socket that wakes it: nothing is read from it, nothing answers."""
    node = local_node.folder_of(world.settings)
    paths = [path for path in _unix_paths(world) if path.endswith("/shared/bell")]
    assert len(paths) == 1
    assert node.stat().st_mode & 0o077 == 0
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.bind("")  # an address of its own, to which one could answer
        sender.sendto(b'{"stop": true}', paths[0])
        sender.setblocking(False)
        with pytest.raises(BlockingIOError):
            sender.recv(100)
    assert world.desk.run(world.kernel, "print(6 * 7)").strip() == "42"


def _lab(world: World) -> None:
    """A notebook server without the cookie or the token of its person."""
    base = world.desk.base.partition("://")[2].partition("/")[2]
    (port,) = [port for port in _ports_of([world.lab]) if _speaks_http(port)]
    for path in (
        "api/kernels",
        "api/sessions",
        "api/contents",
        "api/terminals",
        "api/status",
        "lab",
        "slipway/stop",
        f"api/kernels/{world.kernel}/channels",
        "files/x",
        "metrics",
    ):
        answer = world.get(port, f"/{base}/{path}")
        # A page leads to the sign-in of the Hub.
        assert answer.status_code in (302, 401, 403, 404), (path, answer.status_code)
        assert world.kernel not in answer.text, path


def _speaks_http(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.settimeout(3)
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        try:
            return connection.recv(5).startswith(b"HTTP/")
        except TimeoutError:
            return False


def _kernel(world: World) -> None:
    """A kernel signs what it is told, and must not publish its output to whoever subscribes."""
    ports = _ports_of([world.kernel_pid])
    assert ports
    context = zmq.Context()
    listener = context.socket(zmq.SUB)
    listener.setsockopt(zmq.SUBSCRIBE, b"")
    listener.setsockopt(zmq.LINGER, 0)
    for port in ports:
        listener.connect(f"tcp://127.0.0.1:{port}")
    for _ in range(3):
        world.desk.run(world.kernel, "print('needle' + '-of-a-cell')")
    received = b""
    while listener.poll(1000):
        received += b"".join(listener.recv_multipart())
    context.destroy(linger=0)
    assert b"needle" not in received


@dataclass(frozen=True)
class Service:
    """How a process is reached, what it asks for, and the check without a credential."""

    reached: str
    authentication: str
    check: Check


SERVICES: dict[str, Service] = {
    "redis": Service("loopback TCP", "password", _redis),
    "tracking": Service("Unix socket", "peer credentials, secret in each request", _tracking),
    "control": Service("loopback TCP", "token; alive and ready without", _control),
    "portal": Service(
        "public TCP",
        "session or token; alive and ready without",
        _http(
            lambda world: world.settings.portal_port,
            "/healthz",
            "/readyz",
            closed={
                "/api/agent/v1/desired": "GET",
                "/api/agent/v1/heartbeat": "POST",
                "/api/gateway/v1/snapshot": "GET",
                "/api/gateway/v1/reports": "POST",
                "/api/hub/v1/servers": "GET",
                "/api/v1/projects": "GET",
                "/mlflow/api/2.0/mlflow/experiments/search": "GET",
            },
        ),
    ),
    "gateway": Service(
        "public TCP",
        "key of an endpoint; alive and ready without",
        _http(
            lambda world: world.settings.gateway_port,
            "/healthz",
            "/v2/health/live",
            closed={"/v1/any/predict": "POST", "/invocations": "POST", "/v2/models/any": "GET"},
        ),
    ),
    "relay": Service(
        "public TCP, and Unix sockets",
        "token of a node; alive without",
        _http(lambda world: world.settings.relay_port, "/healthz", closed={"/relay": "GET"}),
    ),
    "notebooks": Service(
        "public TCP, and loopback TCP for its routes",
        "token",
        _http(
            lambda world: world.settings.notebooks_proxy_port,
            closed={"/api/routes": "GET", "/api/routes/": "GET", "/api/routes/x": "POST"},
        ),
    ),
    "hub": Service(
        "loopback TCP, and through the proxy",
        "token or sign-in; alive without",
        _http(
            lambda world: world.settings.notebooks_hub_port,
            "/hub/health",
            closed={
                "/hub/api/users": "GET",
                "/hub/api/info": "GET",
                "/hub/api/services": "GET",
                "/hub/api/proxy": "GET",
                "/hub/api/shutdown": "POST",
                "/hub/metrics": "GET",
            },
        ),
    ),
    "agent": Service("Unix datagram socket", "none: it only wakes the agent", _agent),
    # Started by the node, one for each workload.
    "lab": Service("TCP of the node", "sign-in by the Hub", _lab),
    "kernel": Service("loopback TCP", "signature; CurveZMQ for what it publishes", _kernel),
}
# What tests of their own show: tests/workers/model_server and tests/workers/node_agent.
ELSEWHERE = {"replica": "mutual proof of a secret", "shim": "sender below the shim"}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """All of Slipway, with every process that it can start and a notebook at work."""
    embedded_parts = {f"SLIPWAY_EMBEDDED_{part}": "true" for part in _PARTS}
    folder = tmp_path_factory.mktemp("internal")
    with running_notebooks(folder, node=None, **embedded_parts) as running:
        for name in ("tracking", "gateway", "relay", "hub", "notebooks", "agent"):
            running.program.wait_for_text(f"{name} ready", within_s=120)
        bob = Person(running, "bob", PASSWORD)
        desk = bob.open(bob.ready())
        kernel = desk.kernel()
        desk.run(kernel, "pass")
        yield World(running, desk, kernel)


def _descendants(world: World) -> list[int]:
    pids, waiting = [], [world.running.program.pid]
    while waiting:
        pid = waiting.pop()
        pids.append(pid)
        waiting += children_of(pid)
    # Tasks outlive their agent, so some of them are nobody's children here.
    marker = str(world.data_dir).encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) not in pids and marker in _environ(entry.name):
            pids.append(int(entry.name))
    return pids


def _parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _environ(pid: int | str) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def _inodes(pids: list[int]) -> set[str]:
    inodes = set()
    for pid in pids:
        try:
            descriptors = list(Path(f"/proc/{pid}/fd").iterdir())
        except OSError:
            continue
        for descriptor in descriptors:
            try:
                named = re.fullmatch(r"socket:\[(\d+)\]", str(descriptor.readlink()))
            except OSError:
                continue
            if named:
                inodes.add(named[1])
    return inodes


def _ports_of(pids: list[int]) -> list[int]:
    """Return the TCP ports these processes listen on."""
    inodes, ports = _inodes(pids), set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTENING and fields[9] in inodes:
                ports.add(int(fields[1].rpartition(":")[2], 16))
    return sorted(ports)


def _unix_paths(world: World) -> list[str]:
    """Return the paths of Unix sockets that processes of this installation have bound."""
    inodes = _inodes(_descendants(world))
    lines = (line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:])
    return [fields[7] for fields in lines if len(fields) > 7 and fields[6] in inodes]


def test_every_process_of_an_installation_is_in_the_table(world: World) -> None:
    at = world.running.installation
    environ = dict(at.environ) | {f"SLIPWAY_EMBEDDED_{part}": "true" for part in _PARTS}
    settings = read_env(environ, Path(os.devnull))
    specs = [
        *up.process_specs(settings, environ),
        *notebooks.notebooks_specs(settings, environ),
        local_node.agent_spec(settings, environ),
    ]
    missing = {spec.name for spec in specs} - SERVICES.keys()
    assert not missing, f"say in SERVICES what an unauthenticated process gets of {missing}"


@pytest.mark.parametrize("name", SERVICES)
def test_without_a_credential_a_local_process_gets_nothing(world: World, name: str) -> None:
    SERVICES[name].check(world)


def test_nothing_else_listens(world: World) -> None:
    settings = world.settings
    tasks = {world.kernel_pid, world.lab, world.shim}
    ours = [pid for pid in _descendants(world) if pid not in tasks]
    known = {
        settings.redis_port,
        settings.control_health_port,
        settings.portal_port,
        settings.gateway_port,
        settings.relay_port,
        settings.notebooks_port,
        settings.notebooks_proxy_port,
        settings.notebooks_hub_port,
    }
    assert set(_ports_of(ours)) == known
    # Sockets of tasks are those of kernels, JupyterLab, and the shim's.
    sockets = {Path(path).name for path in _unix_paths(world) if not path.startswith("@")}
    assert sockets == {"tracking.sock", "bell", "s"}, sockets


def _secrets_of(world: World) -> dict[str, str]:
    """Return every secret of the installation that rests in a file, by what it is."""
    keys = world.data_dir / "keys"
    secrets = {path.name: path.read_text().strip() for path in keys.glob("*.key")}
    secrets["gateway token"] = (world.data_dir / "gateway" / "token").read_text().strip()
    admission = json.loads((world.data_dir / "notebooks" / "admission.json").read_text())
    secrets |= {
        f"hub {name}": admission[name] for name in ("token", "client_secret", "proxy_secret")
    }
    identity = json.loads((world.data_dir / "node" / "node.json").read_text())
    secrets["node token"] = identity["node_token"]
    assert {"redis.key", "tracking.key", "metrics.key", "secrets.key", "session.key"} <= set(
        secrets
    )
    assert all(len(secret) >= 32 for secret in secrets.values())
    return secrets


def test_no_secret_is_on_a_command_line(world: World) -> None:
    known = _secrets_of(world)
    for pid in _descendants(world):
        command = command_of(pid)
        assert not [name for name, secret in known.items() if secret in command], command


def test_no_secret_is_in_the_environment_of_what_runs_near_user_code(world: World) -> None:
    known = _secrets_of(world)
    near = [
        pid
        for pid in _descendants(world)
        if "workers.node_agent" in command_of(pid)
        or "workers.gateway" in command_of(pid)
        or "-m notebooks_service" in command_of(pid)
    ]
    near += [world.kernel_pid, world.lab, world.shim]
    assert len(near) >= 6
    for pid in near:
        environ = _environ(pid).decode(errors="replace")
        assert not [name for name, secret in known.items() if secret in environ], command_of(pid)
    environment = world.desk.run(world.kernel, "import os; print(dict(os.environ))")
    assert "SLIPWAY_" in environment
    assert not [name for name, secret in known.items() if secret in environment]


def test_no_secret_of_the_compose_file_is_on_a_command_line() -> None:
    path = Path(__file__).parents[2] / "deploy" / "compose" / "compose.yaml"
    services = yaml.safe_load(path.read_text())["services"]
    assert "redis" in services
    for name, service in services.items():
        words = json.dumps([service.get("command"), service.get("entrypoint")])
        # Compose replaces ${NAME} itself; $$NAME is left to the shell in the container.
        exposed = re.findall(r"(?<!\$)\$\{?\w*(?:PASSWORD|SECRET|TOKEN)\w*", words)
        assert not exposed, (name, exposed)


def test_keys_are_files_of_one_user(world: World) -> None:
    keys = world.data_dir / "keys"
    assert keys.stat().st_mode & 0o777 == 0o700
    for path in [*keys.iterdir(), world.data_dir / "gateway" / "token"]:
        assert path.stat().st_mode & 0o077 == 0, path


def test_the_security_page_has_a_line_for_each_service() -> None:
    page = (Path(__file__).parents[2] / "SECURITY.md").read_text()
    section = page.partition("## Internal services")[2].partition("\n## ")[0]
    rows = {line.split("|")[1].strip() for line in section.splitlines() if line.startswith("| ")}
    assert {*SERVICES, *ELSEWHERE} <= rows


def test_a_secret_reaches_the_check_of_its_own_service(world: World) -> None:
    """The refusals above are about the credential: with it, the same request is answered."""
    secret = (world.data_dir / "keys" / "tracking.key").read_text().strip()
    transport = httpx.HTTPTransport(uds=str(world.data_dir / "tracking.sock"))
    with httpx.Client(transport=transport) as client:
        headers = {"Authorization": f"Bearer {secret}"}
        assert client.get("http://tracking/health", headers=headers).status_code == 200
    bearer = world.running.installation.metrics_bearer
    port = world.settings.control_health_port
    assert world.get(port, "/readyz", headers=bearer).json()["checks"].keys() >= {"broker"}
    wait_for(
        lambda: b"slipway_tasks_total" in world.get(port, "/metrics", headers=bearer).content,
        "metrics of the control worker",
    )
