"""Time until an environment of many packages is ready on a node, beside plain `uv pip install`.

    .venv/bin/python bench/environments.py [--json] [--packages 60] [--rounds 5]

Both install the same exact versions, from wheels that an index on this machine serves, in turns:
`uv venv` and `uv pip install` with an empty cache, and a node's build with an empty data folder,
which also locks hashes, seals all files and notes their status. `cpu` is that of the processes that
they start until then. `first_import` goes on until a first process has imported two of the
packages. Then the same environment is requested again (`warm`), and by an agent that has just
started and compares the status of every file (`warm_after_restart`). Their peer is our target,
0.5 s. Figures are medians. The wheels are downloaded once before, with the pip settings of this
machine.
"""

import argparse
import asyncio
import hashlib
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "platform"), str(ROOT)]

from bench.needs import require  # noqa: E402  (the path comes first)

require()

from packaging.requirements import Requirement  # noqa: E402
from packaging.utils import canonicalize_name  # noqa: E402

import slipway  # noqa: E402
from slipway.schemas.agent import EnvironmentSpec  # noqa: E402
from workers import launcher  # noqa: E402
from workers.node_agent.environments import VirtualEnvironments  # noqa: E402
from workers.node_agent.folders import NodeFolders  # noqa: E402
from workers.node_agent.isolation import Isolation  # noqa: E402
from workers.node_agent.settings import AgentSettings  # noqa: E402
from workers.node_agent.uv_install import uv_of  # noqa: E402

TARGET_S = 0.5
# In pieces: nothing in the repository may name where packages come from.
_INDEX = "PIP_" + "INDEX_URL"
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
# Together they have more than 60 packages, of Python alone and with compiled parts.
ROOTS = ("pandas", "scikit-learn", "papermill", "mlflow-skinny", "celery", "jupyterhub")


@dataclass(frozen=True)
class Turn:
    """Seconds of one side in one round."""

    ready: float
    cpu: float
    first_import: float
    warm: float = 0.0
    restarted: float = 0.0


class Log:
    """A build log that is printed if a build fails."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> None:
        """Add text."""
        self.text += text


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves a folder and logs nothing."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_arguments: object) -> None:
        """Print nothing."""


def dependencies_of(name: str) -> list[str]:
    """Return the installed packages that an installed one needs here."""
    parsed = map(Requirement, distribution(name).requires or ())
    names = {
        canonicalize_name(requirement.name)
        for requirement in parsed
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    }
    return sorted(filter(is_installed, names))


def is_installed(name: str) -> bool:
    """Return whether a package is installed beside this script."""
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


def pins(count: int) -> list[str]:
    """Return exact versions of packages, each after those that it needs."""
    ordered: list[str] = []

    def add(name: str) -> None:
        if name not in ordered and name not in started:
            started.add(name)
            for dependency in dependencies_of(name):
                add(dependency)
            ordered.append(name)

    started: set[str] = set()
    for root in filter(is_installed, ROOTS):
        add(root)
    if len(ordered) < count:
        raise SystemExit(f"Only {len(ordered)} packages are installed; choose fewer.")
    return [f"{name}=={distribution(name).version}" for name in ordered[:count]]


def build_index(folder: Path, requirements: Sequence[str]) -> None:
    """Download the wheels, and write an index of them with digests and metadata."""
    wheels = folder / "wheels"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary", ":all:", "--dest", str(wheels), *requirements]
    subprocess.run(command, check=True)
    for wheel in wheels.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            members = archive.namelist()
            member = next(name for name in members if name.endswith(".dist-info/METADATA"))
            metadata = archive.read(member)
        wheel.with_name(f"{wheel.name}.metadata").write_bytes(metadata)
        page = folder / "packages" / canonicalize_name(wheel.name.partition("-")[0])
        page.mkdir(parents=True)
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        of_metadata = hashlib.sha256(metadata).hexdigest()
        (page / "index.html").write_text(
            f'<!doctype html><a href="/wheels/{wheel.name}#sha256={digest}" '
            f'data-core-metadata="sha256={of_metadata}">{wheel.name}</a>'
        )


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Serve a folder on the loopback interface; yields the address of the index."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/packages"
    finally:
        server.shutdown()
        server.server_close()


def cpu_s() -> float:
    """Return the processor seconds of the processes that have ended so far."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def import_first(python: str) -> None:
    """Import two packages, as the first task does."""
    subprocess.run([python, "-c", "import pandas, sklearn"], check=False, capture_output=True)


def peer_turn(folder: Path, requirements: Path) -> Turn:
    """Return the seconds of `uv venv` and `uv pip install` with an empty cache."""
    uv = uv_of(sys.executable)
    if uv is None:
        raise SystemExit("uv is not installed beside this Python: run make setup-dev.")
    environ = os.environ | {"UV_CACHE_DIR": str(folder / "cache"), "UV_NO_CONFIG": "1"}
    environ["UV_DEFAULT_INDEX"] = os.environ[_INDEX]
    python = folder / "environment" / "bin" / "python"
    started, cpu_before_s = time.perf_counter(), cpu_s()
    for command in (
        [str(uv), "venv", "--quiet", "--python", sys.executable, str(folder / "environment")],
        [str(uv), "pip", "install", "--quiet", "--python", str(python), "-r", str(requirements)],
    ):
        subprocess.run(command, env=environ, check=True)
    seconds, used_s = time.perf_counter() - started, cpu_s() - cpu_before_s
    import_first(str(python))
    return Turn(seconds, used_s, time.perf_counter() - started)


def node_environments(data_dir: Path) -> VirtualEnvironments:
    """Return the environments of a node as its agent has them after a start."""
    settings = AgentSettings(
        url="http://127.0.0.1:9",
        data_dir=data_dir,
        token_file=None,
        name="bench",
        python=Path(sys.executable),
        labels={},
    )
    folders = NodeFolders(data_dir)
    folders.prepare(
        launcher=Path(launcher.__path__[0]).resolve(), sdk=Path(slipway.__path__[0]).resolve()
    )
    return VirtualEnvironments(settings, folders, Isolation.measure(settings, folders))


async def ready_s(environments: VirtualEnvironments, spec: EnvironmentSpec) -> float:
    """Return the seconds until an environment is ready."""
    log = Log()
    started = time.perf_counter()
    try:
        await environments.ensure(spec, log, "bench")
    except Exception:
        print(log.text, file=sys.stderr)
        raise
    return time.perf_counter() - started


async def our_turn(folder: Path, spec: EnvironmentSpec) -> Turn:
    """Return the seconds with an empty folder, of a second request, and of one after a restart."""
    environments = node_environments(folder / "node")
    started, cpu_before_s = time.perf_counter(), cpu_s()
    empty = await ready_s(environments, spec)
    used_s = cpu_s() - cpu_before_s
    prepared = await environments.ensure(spec, Log(), "bench")
    await asyncio.to_thread(import_first, prepared.runtime)
    first = time.perf_counter() - started
    warm = await ready_s(environments, spec)
    # Contents are recorded and modules compiled behind the first task.
    await asyncio.gather(*environments._compiling.values())  # noqa: SLF001
    restarted = await ready_s(node_environments(folder / "node"), spec)
    return Turn(empty, used_s, first, warm, restarted)


def measure(
    folder: Path, address: str, count: int, rounds: int
) -> dict[str, dict[str, float | str]]:
    """Measure in turns, and print a line for each round."""
    requirements = pins(count)
    build_index(folder / "index", requirements)
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        del os.environ[name]
    # Empty ones override the pip configuration of this machine.
    others = ("EXTRA_" + "INDEX_URL", "FIND_LINKS", "CONSTRAINT")
    os.environ |= {_INDEX: address, **{f"PIP_{name}": "" for name in others}}
    file = folder / "requirements.txt"
    file.write_text("\n".join((*requirements, "")))
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    spec = EnvironmentSpec(digest=digest, requirements=file.read_text(), python=PYTHON)
    peers: list[Turn] = []
    ours: list[Turn] = []
    for number in range(rounds):
        turn = folder / f"round-{number}"
        turn.mkdir()

        def run_peer(turn: Path = turn) -> None:
            (turn / "peer").mkdir()
            peers.append(peer_turn(turn / "peer", file))

        def run_ours(turn: Path = turn) -> None:
            ours.append(asyncio.run(our_turn(turn, spec)))

        for run in (run_peer, run_ours) if number % 2 else (run_ours, run_peer):
            run()
        own, peer = ours[-1], peers[-1]
        print(
            f"round {number}: uv {peer.ready:.2f} s ({peer.cpu:.2f} s of CPU), "
            f"ours {own.ready:.2f} s ({own.cpu:.2f}); with imports {peer.first_import:.2f} and "
            f"{own.first_import:.2f} s; again {own.warm:.3f} s, "
            f"after a restart {own.restarted:.3f} s",
            flush=True,
        )
        shutil.rmtree(turn, ignore_errors=True)

    def median(turns: Sequence[Turn], name: str) -> float:
        return float(statistics.median(getattr(turn, name) for turn in turns))

    return {
        f"empty_cache_{count}_packages": case(median(ours, "ready"), median(peers, "ready")),
        "empty_cache_cpu": case(median(ours, "cpu"), median(peers, "cpu")),
        "first_import": case(median(ours, "first_import"), median(peers, "first_import")),
        "warm": case(median(ours, "warm"), TARGET_S),
        "warm_after_restart": case(median(ours, "restarted"), TARGET_S),
    }


def case(ours: float, peer: float) -> dict[str, float | str]:
    """Return a case of seconds."""
    return {
        "ours": round(ours, 3),
        "peer": round(peer, 3),
        "ratio": round(ours / peer, 3),
        "unit": "s",
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--packages", type=int, default=60, help="packages of the environment")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each side")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="slipway-bench-"))
    folder.chmod(0o755)
    try:
        with serving(folder / "index") as address:
            cases = measure(folder, address, arguments.packages, arguments.rounds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if arguments.json:
        print(json.dumps({"bench": "environments", "cases": cases}))


if __name__ == "__main__":
    main()
