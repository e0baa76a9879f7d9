"""Ray, Dask and TensorFlow: the programs of their clusters, and how a script finds them."""

import json
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Protocol

from workers.launcher.clusters.dashboard import Dashboard
from workers.launcher.clusters.member import Member, log_line, python_command
from workers.launcher.gang import ray_variables
from workers.launcher.network import endpoint

# The part of a node's memory that Ray uses for shared objects by default.
_OBJECT_STORE_PART: Final = 0.3
_LEAST_OBJECT_STORE_BYTES: Final = 80 << 20
_FIRST_WITH_TOKENS: Final = (2, 52)
_DAYS: Final = "365"
# A user of parameter servers may set another number of them, as a secret of the project.
_SERVERS_VARIABLE: Final = "PARAMETER_SERVERS"
_RANKS_A_SERVER: Final = 4


@dataclass(frozen=True)
class Entry:
    """Data that ranks need to join: address, variables, and files by the variable of their path."""

    address: str
    variables: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)

    def environment(self, member: Member) -> dict[str, str]:
        """Return the variables, after writing the files to the private folder of the task."""
        env = dict(self.variables)
        for number, text in enumerate(dict.fromkeys(self.files.values())):
            path = member.folder / f"cluster-{member.rank}-{number}.pem"
            path.touch(0o600)
            path.write_text(text)
            env |= {name: str(path) for name, content in self.files.items() if content == text}
        return env


class Software(Protocol):
    """One framework. `node` is its word for a member of its cluster."""

    label: str
    package: str
    node: str

    def prepare(self, member: Member) -> dict[str, str]:
        """Return variables of all of its programs and of the script."""

    def head_command(self, member: Member) -> list[str]:
        """Return the command of the head, empty if the script itself is it."""

    def entry(self, member: Member) -> Entry | None:
        """Return what others need to join, or None while the head does not listen yet."""

    def node_command(self, member: Member, address: str) -> list[str]:
        """Return the command of a node, empty if this rank has none of its own."""

    def nodes(self, member: Member) -> int:
        """Return the number of nodes of the whole cluster."""

    def count_command(self, address: str) -> list[str]:
        """Return a command that prints the number of nodes that have joined, again and again."""

    def script_variables(self, entry: Entry) -> dict[str, str]:
        """Return the variables with which the script finds the cluster."""

    def dashboard(self, member: Member, entry: Entry) -> Dashboard | None:
        """Return how to start the dashboard, or None for a framework without one."""


class Ray:
    """Ray: a head in the first task and a node in each other one, for all CPUs of the task."""

    label = "Ray"
    package = "ray"
    node = "node"

    _COUNT: Final = (
        "import sys, time, ray\n"
        "ray.init(address=sys.argv[1], log_to_driver=False, logging_level='ERROR')\n"
        "while True:\n"
        "    print(sum(bool(node['Alive']) for node in ray.nodes()), flush=True)\n"
        "    time.sleep(0.2)\n"
    )

    # Packages of `ray[default]` that the dashboard imports.
    _DASHBOARD_PACKAGES: Final = (
        *("aiohttp", "aiohttp_cors", "grpc", "opencensus", "opentelemetry", "prometheus_client"),
    )

    def __init__(self) -> None:
        self._head: tuple[str, int] = ("", 0)

    def prepare(self, member: Member) -> dict[str, str]:
        """Return the token, without which Ray serves everybody who reaches the machine."""
        variables = ray_variables(member.env | {"SLIPWAY_TOKEN": member.token})
        if variables and _version_of("ray") < _FIRST_WITH_TOKENS and member.rank == 0:
            log_line(
                f"Ray {version('ray')} knows no tokens: every process that reaches this "
                "machine can use the cluster. Require ray>=2.52."
            )
        return {"RAY_USAGE_STATS_ENABLED": "0", **variables}

    def head_command(self, member: Member) -> list[str]:
        """Return `ray start --head`."""
        port = member.head_port or _free_port(member.own_host)
        self._head = (member.own_host, port)
        # Only with gRPC there is a server for clients outside, at the same port on each machine.
        clients = [f"--ray-client-server-port={_free_port('')}"] if find_spec("grpc") else []
        return self._start(
            member, "--head", f"--port={port}", "--include-dashboard=false", *clients
        )

    def entry(self, member: Member) -> Entry | None:
        """Return the address of the head once it accepts connections."""
        try:
            socket.create_connection(self._head, timeout=5.0).close()
        except OSError:
            return None
        return Entry(endpoint(*self._head))

    def node_command(self, member: Member, address: str) -> list[str]:
        """Return `ray start --address`, in the first rank of each task but the first."""
        if member.local_rank > 0 or member.rank == 0:
            return []
        return self._start(member, f"--address={address}")

    def nodes(self, member: Member) -> int:
        """Return the number of tasks."""
        return member.tasks

    def count_command(self, address: str) -> list[str]:
        """Connect as a script does, and ask for the nodes."""
        return python_command("-c", self._COUNT, address)

    def script_variables(self, entry: Entry) -> dict[str, str]:
        """Return the variable that `ray.init()` reads."""
        return {"RAY_ADDRESS": entry.address}

    def dashboard(self, member: Member, entry: Entry) -> Dashboard | None:
        """Return the command that `ray start` starts the dashboard with, on loopback.

        Source of the options: `ray._private.services.start_api_server`.
        """
        label, token = "Ray's dashboard", member.env.get("RAY_AUTH_TOKEN", "")
        missing = [name for name in self._DASHBOARD_PACKAGES if find_spec(name) is None]
        obstacle = ""
        if _version_of("ray") < _FIRST_WITH_TOKENS:
            obstacle = (
                f"Ray {version('ray')} knows no tokens, so every process of this machine could "
                "use its dashboard. Require ray[default]>=2.52 and submit the job again."
            )
        elif missing:
            obstacle = (
                f"{label} needs packages that the environment of this job does not have "
                f"({', '.join(missing)}). Install ray[default]: write ray[default] instead of ray "
                "in its packages, and submit it again."
            )
        elif member.env.get("RAY_AUTH_MODE") != "token" or not token:
            obstacle = (
                f"{label} is served only with a token. Remove RAY_AUTH_MODE from the variables of "
                "this job and submit it again."
            )
        if obstacle:
            return Dashboard(label, obstacle=obstacle)
        folder = member.folder / "ray"
        session = folder / "session_latest"
        spec = find_spec("ray")
        package = Path(spec.origin or "" if spec else "").parent
        command = python_command(
            *(
                str(package / "dashboard" / "dashboard.py"),
                "--host=127.0.0.1",
                "--port={port}",
                "--port-retries=0",
            ),
            *(f"--gcs-address={entry.address}", f"--node-ip-address={member.own_host}"),
            *(f"--temp-dir={folder}", f"--session-dir={session.resolve()}"),
            *(f"--log-dir={session.resolve() / 'logs'}", "--cluster-id-hex="),
        )
        variables = {
            name: member.env[name]
            for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_USAGE_STATS_ENABLED")
        }
        return Dashboard(label, tuple(command), f"Bearer {token}", variables)

    def _start(self, member: Member, *options: str) -> list[str]:
        shared = max(_LEAST_OBJECT_STORE_BYTES, int(member.memory_bytes * _OBJECT_STORE_PART))
        return python_command(
            *("-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats", *options),
            *(f"--node-ip-address={member.own_host}", f"--temp-dir={member.folder / 'ray'}"),
            *(f"--num-cpus={member.cpus}", f"--object-store-memory={shared}"),
            f"--memory={max(shared, member.memory_bytes - shared)}",
            # Several tasks may be on one machine: ports that the system chooses.
            *("--min-worker-port=0", "--max-worker-port=0", "--dashboard-agent-listen-port=0"),
        )


class Dask:
    """Dask: a scheduler beside rank 0, and a worker in each rank, with TLS among themselves."""

    label = "Dask"
    package = "distributed"
    node = "worker"

    _COUNT: Final = (
        "import sys, time\n"
        "from distributed import Client\n"
        "with Client(sys.argv[1], timeout=60) as client:\n"
        "    while True:\n"
        "        print(len(client.scheduler_info(n_workers=-1)['workers']), flush=True)\n"
        "        time.sleep(0.2)\n"
    )
    _SETTINGS: Final = "DASK_DISTRIBUTED__COMM__"
    _ROLES: Final = ("CLIENT", "SCHEDULER", "WORKER")

    def prepare(self, member: Member) -> dict[str, str]:
        """Return nothing: the key is made by rank 0 and is part of the entry."""
        return {}

    def head_command(self, member: Member) -> list[str]:
        """Return `dask scheduler`. It writes its address to a file."""
        certificate, key = _certificate(member)
        files = {f"{self._SETTINGS}TLS__CA_FILE": certificate}
        for role in self._ROLES:
            files[f"{self._SETTINGS}TLS__{role}__CERT"] = certificate
            files[f"{self._SETTINGS}TLS__{role}__KEY"] = key
        self._entry = Entry("", {f"{self._SETTINGS}REQUIRE_ENCRYPTION": "True"}, files)
        member.env.update(self._entry.environment(member))
        return python_command(
            *("-m", "dask", "scheduler", "--protocol", "tls", "--host", member.own_host),
            *("--port", "0", "--no-dashboard", "--scheduler-file", str(self._file(member))),
        )

    def entry(self, member: Member) -> Entry | None:
        """Return the address that the scheduler has written, and the key."""
        try:
            address = str(json.loads(self._file(member).read_text())["address"])
        except (OSError, ValueError, KeyError):
            return None
        return Entry(address, self._entry.variables, self._entry.files)

    def node_command(self, member: Member, address: str) -> list[str]:
        """Return `dask worker`, with the share of this rank."""
        return python_command(
            *("-m", "dask", "worker", address, "--host", member.own_host, "--no-dashboard"),
            *("--nworkers", "1", "--nthreads", str(member.own_threads), "--name", str(member.rank)),
            *("--memory-limit", str(member.own_memory_bytes)),
            *("--local-directory", str(member.folder / f"dask-{member.rank}")),
        )

    def nodes(self, member: Member) -> int:
        """Return the number of ranks."""
        return member.world_size

    def count_command(self, address: str) -> list[str]:
        """Connect as a script does, and ask for the workers."""
        return python_command("-c", self._COUNT, address)

    def script_variables(self, entry: Entry) -> dict[str, str]:
        """Return the variable that `Client()` reads."""
        return {"DASK_SCHEDULER_ADDRESS": entry.address}

    def dashboard(self, member: Member, entry: Entry) -> Dashboard | None:
        """Return nothing: it knows no token, so other tasks of the machine could use it."""
        return None

    def _file(self, member: Member) -> Path:
        return member.folder / "dask-scheduler.json"


class ParameterServer:
    """TensorFlow's parameter servers: a server in each rank but the first, which coordinates.

    Source of the roles: `TF_CONFIG` of `tf.distribute.cluster_resolver.TFConfigClusterResolver`.
    """

    label = "TensorFlow"
    package = "tensorflow"
    node = "server"

    _SERVE: Final = (
        "import tensorflow as tf\n"
        "role = tf.distribute.cluster_resolver.TFConfigClusterResolver()\n"
        "tf.distribute.Server(role.cluster_spec(), job_name=role.task_type,\n"
        "                     task_index=role.task_id, protocol='grpc').join()\n"
    )
    _COUNT: Final = (
        "import socket, sys, time\n"
        "waiting = set(sys.argv[2:])\n"
        "while True:\n"
        "    for server in sorted(waiting):\n"
        "        host, port = server.rsplit(':', 1)\n"
        "        try:\n"
        "            socket.create_connection((host.strip('[]'), int(port)), timeout=5).close()\n"
        "        except OSError:\n"
        "            continue\n"
        "        waiting.discard(server)\n"
        "    print(len(sys.argv) - 2 - len(waiting), flush=True)\n"
        "    time.sleep(0.2)\n"
    )

    def __init__(self) -> None:
        self._servers: tuple[str, ...] = ()

    def prepare(self, member: Member) -> dict[str, str]:
        """Return `TF_CONFIG` with the role of this rank. Raises SystemExit if there are too few."""
        count = _server_count(member)
        chief, *others = member.hosts
        self._servers = tuple(others)
        cluster = {"chief": [chief], "ps": others[:count], "worker": others[count:]}
        if member.rank == 0:
            task: dict[str, object] = {"type": "chief", "index": 0}
        elif member.rank <= count:
            task = {"type": "ps", "index": member.rank - 1}
        else:
            task = {"type": "worker", "index": member.rank - 1 - count}
        return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})}

    def head_command(self, member: Member) -> list[str]:
        """Return nothing: the script is the coordinator, and listens itself."""
        return []

    def entry(self, member: Member) -> Entry | None:
        """Return the address of the coordinator. The servers know each other from `TF_CONFIG`."""
        return Entry(member.hosts[0])

    def node_command(self, member: Member, address: str) -> list[str]:
        """Return a server, in each rank but the first."""
        return python_command("-c", self._SERVE) if member.rank > 0 else []

    def nodes(self, member: Member) -> int:
        """Return the number of servers."""
        return member.world_size - 1

    def count_command(self, address: str) -> list[str]:
        """Count the servers that accept connections."""
        return python_command("-c", self._COUNT, address, *self._servers)

    def script_variables(self, entry: Entry) -> dict[str, str]:
        """Return nothing more: the script has its `TF_CONFIG`."""
        return {}

    def dashboard(self, member: Member, entry: Entry) -> Dashboard | None:
        """Return nothing: there is none."""
        return None


def _server_count(member: Member) -> int:
    """Return the number of parameter servers. Raises SystemExit unless a worker is left."""
    most = len(member.hosts) - 2
    if most < 1:
        sys.exit(
            "A job with the framework parameter_server needs 3 to 2,000 ranks: a coordinator, a "
            f"parameter server and a worker. This job has {member.world_size}: change --nodes or "
            "--procs and submit it again."
        )
    usual = max(1, (member.world_size - 1) // _RANKS_A_SERVER)
    text = member.env.get(_SERVERS_VARIABLE, str(usual))
    if text.isdecimal() and 1 <= int(text) <= most:
        return int(text)
    sys.exit(
        f"{_SERVERS_VARIABLE} is {text!r}. With {member.world_size} ranks it can be 1 to {most}: "
        "one rank coordinates, and at least one is a worker."
    )


def software_of(name: str) -> Software:
    """Return a framework by name. Raises KeyError."""
    kinds: dict[str, type[Ray | Dask | ParameterServer]] = {
        "ray": Ray,
        "dask": Dask,
        "parameter_server": ParameterServer,
    }
    return kinds[name]()


def _version_of(package: str) -> tuple[int, ...]:
    try:
        parts = version(package).split(".")
    except PackageNotFoundError:
        return _FIRST_WITH_TOKENS  # built from sources, probably recent
    return tuple(int(part) if part.isdecimal() else 0 for part in parts[:2])


def _free_port(host: str) -> int:
    """Return a port that is free now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def _certificate(member: Member) -> tuple[str, str]:
    """Return a certificate that signs itself and its key, for the members of this cluster alone."""
    openssl = shutil.which("openssl")
    if openssl is None:
        sys.exit(
            "A Dask cluster needs the program openssl to make a key that keeps others out, and "
            "this machine has none. Ask an administrator to install it on the nodes."
        )
    key, certificate = member.folder / "dask-key.pem", member.folder / "dask-certificate.pem"
    key.touch(0o600)
    subprocess.run(
        [
            *(openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-subj", "/CN=slipway-job", "-days", _DAYS),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    return certificate.read_text(), key.read_text()
