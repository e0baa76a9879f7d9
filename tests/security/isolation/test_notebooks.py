"""The same attacks from a cell of a notebook, against a whole Slipway and a rival's jobs."""

import json
import os
import secrets
import shutil
import site
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from portal.config.local_node import base_environment
from tests.jobs import Jobs
from tests.notebooks import PASSWORD, Person, running_notebooks
from tests.portals import RunningPortal
from tests.processes import Program, wait_for
from tests.security.isolation.arena import (
    KINDS,
    ORDINARY_UID,
    PACKAGE,
    VICTIM,
    Neighbour,
    canary,
    common_folders,
    hostile_files,
    ipc_remove,
    skip_unless_possible,
)
from tests.security.isolation.attacks import LEVELS, NAMES, NAMESPACES, ROOTLESS, SHARED, USERS
from tests.security.isolation.test_jobs import check
from workers.launcher.atomic_files import read_json
from workers.launcher.launch import StateFolder
from workers.launcher.processes import descendants, start_ticks
from workers.node_agent.folders import NodeFolders

pytestmark = [pytest.mark.slow, pytest.mark.integration]


@dataclass(frozen=True)
class Site:
    """All of Slipway, and the folder of its one node at a level of isolation."""

    level: str
    running: RunningPortal
    node: Path
    agent: Program

    @property
    def data(self) -> Path:
        """Data folder of the node."""
        return self.node / "data"


@contextmanager
def site_at(level: str, folder: Path) -> Iterator[Site]:
    """Yield a Slipway whose node has that level."""
    node = Path(tempfile.mkdtemp(prefix="sl-"))
    agents: list[Program] = []

    def start(running: RunningPortal) -> Program:
        agents.append(start_agent(level, running, node))
        return agents[0]

    try:
        with running_notebooks(folder, node=start) as running:
            if level == SHARED:
                with running.client("root") as root:
                    root.patch("/nodes/attacked", json={"mixes_projects": True}).raise_for_status()
            yield Site(level, running, node, agents[0])
    finally:
        shutil.rmtree(node, ignore_errors=True)


def start_agent(level: str, running: RunningPortal, node: Path) -> Program:
    """Start an agent as the user that the level is about."""
    installation = running.installation
    token = node / "token"
    token.write_text(installation.manage("node_token", "--node", "attacked").stdout)
    token.chmod(0o600)
    command = [
        *(sys.executable, "-m", "workers.node_agent", "--url", running.url, "--name", "attacked"),
        *("--data-dir", str(node / "data"), "--token-file", str(token), "--address", "127.0.0.1"),
        *("--backend", "process", "--python", sys.executable, "--stop-tasks-on-exit"),
        *("--isolation", NAMESPACES if level == ROOTLESS else level),
        *("--hide", str(node), "--hide", str(installation.data_dir)),
    ]
    if level == ROOTLESS and os.getuid() == 0:
        for path in (node, token):
            os.chown(path, ORDINARY_UID, ORDINARY_UID)
        identity = ("--reuid", str(ORDINARY_UID), "--regid", str(ORDINARY_UID), "--clear-groups")
        command = ["setpriv", *identity, *command]
    elif level == USERS:
        # As an administrator has to: others may pass through to what is theirs.
        node.chmod(0o711)
    environment = base_environment(dict(os.environ)) | {"HOME": str(node)}
    return Program(command, env=environment, output=installation.folder / "agent.log")


@pytest.fixture(scope="module", params=LEVELS)
def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    skip_unless_possible(request.param)
    with site_at(request.param, tmp_path_factory.mktemp("isolation")) as made:
        yield made


def plant(data_dir: Path) -> list[str]:
    """Put secrets beside what the platform keeps; answers all paths an attacker would want."""
    (data_dir / "keys" / "canary.key").write_text(canary("installation"))
    kept = [path for path in data_dir.rglob("*") if path.is_file() and path.parent.name == "keys"]
    return [*map(str, kept), *map(str, data_dir.glob("*.sqlite3"))]


def neighbour(jobs: Jobs, ending: str) -> Neighbour:
    """Start a job of another project that is full of secrets."""
    mark, sysv = f"neighbour-{secrets.token_hex(8)}", secrets.randbelow(1 << 30) + 1
    env = {f"CANARY_{kind.upper()}": canary(kind) for kind in KINDS}
    arguments = [mark, str(sysv), ending, canary("argument")]
    prelude = (
        f"import os, sys\nif len(sys.argv) == 1:\n    os.environ.update({env!r})\n"
        f"    os.execv(sys.executable, [sys.executable, sys.argv[0], *{arguments!r}])\n"
    )
    # Without MLflow's server, keeping files would take the two minutes of its patience.
    job = jobs.submit(prelude + VICTIM, keep_limit_bytes=0)

    def placed() -> Any:
        lines = jobs.log(job).splitlines()
        words = [line.partition(" ")[2] for line in lines if line.startswith(("placed ", "left "))]
        return json.loads(words[0]) if words else None

    places = wait_for(placed, "the neighbour", within_s=90)
    if ending == "leave":
        jobs.end_of(job)
    return Neighbour((job, 1), mark, sysv, places)


def targets(place: Site, gone: Neighbour, alive: Neighbour, own: Path) -> dict[str, Any]:
    """All there is to attack in a whole Slipway. `own` is the folder of the attacker's task."""
    running, data = place.running, place.running.installation.data_dir
    node = place.data
    paths = [*plant(data), *map(str, (node / "node.json", place.node / "token"))]
    paths += [path for path in alive.places["paths"] if os.path.lexists(path)]
    pids = {
        pid
        for program in (running.program.pid, place.agent.pid)
        for pid in (program, *descendants(program))
    }
    shim = StateFolder(own / "state").shim()
    assert shim is not None
    # The supervisor itself is another process, and nothing of it may be reached.
    pids -= set(descendants(shim.pid))
    contact = NodeFolders(node).contact(own.name)
    sockets = [
        str(path)
        for folder in (data, place.node)
        for path in folder.rglob("*")
        if path.is_socket() and path != contact
    ]
    packages = site.getsitepackages()[0]
    code = (node / "code/workers/launcher/shim.py", node / "sdk/slipway/__init__.py")
    groups = [
        folder
        for file in node.glob("tasks/*/cgroup.json")
        for folder in (read_json(file) or {}).get("folders", [])
    ]
    return {
        "paths": paths,
        "folders": [
            str(data),
            str(data / "keys"),
            str(node),
            str(node / "tasks"),
            *alive.places["folders"],
        ],
        "names": ["keys", "canary.key", "node.json", f"{alive.mark}.txt"],
        "leftovers": [f"/dev/shm/{gone.mark}"],  # noqa: S108
        "processes": [
            {"name": f"process {pid}", "pid": pid, "ticks": start_ticks(pid)} for pid in pids
        ],
        "sockets": [*sockets, *alive.places["sockets"]],
        "abstract": [alive.mark],
        "ports": alive.places["ports"],
        "hosts": alive.places["hosts"],
        "shm": [alive.mark],
        "sysv": [alive.sysv, gone.sysv],
        "queues": [f"/{alive.mark}", f"/{gone.mark}"],
        "key": gone.mark,
        "inodes": [Path(path).stat().st_ino for path in paths[:3]],
        "control_groups": [*groups, "/sys/fs/cgroup/memory", "/sys/fs/cgroup/unified"],
        "programs": [str(Path(__file__).parents[3]), sys.prefix],
        "executed": [str(data), str(data / "keys"), packages, *alive.places["folders"]],
        "environment": [
            f"{packages}/numpy/__init__.py",
            f"{sys.prefix}/pyvenv.cfg",
            *map(str, code),
        ],
        "own_state": [
            f"{own}/state/{name}" for name in ("journal.jsonl", "claim.json", "stop.json")
        ],
        "common": common_folders(),
        "machine": {},
        "agent_uid": ORDINARY_UID if place.level == ROOTLESS else os.getuid(),
        "rootless": place.level == ROOTLESS,
    }


@pytest.mark.torch
def test_a_cell_of_a_notebook(place: Site) -> None:
    api = place.running.client("root")
    api.post("/projects", json={"name": "Rival"}).raise_for_status()
    jobs = Jobs(api, project="rival")
    gone, alive = neighbour(jobs, "leave"), neighbour(jobs, "stay")
    bob = Person(place.running, "bob", PASSWORD)
    before = set(place.data.glob("tasks/*"))
    server = bob.ready("isolation")
    (own,) = set(place.data.glob("tasks/*")) - before
    orders = {"attacks": NAMES, "targets": targets(place, gone, alive, own)}
    files = hostile_files() | {"targets.json": json.dumps(orders)}
    cell = (
        f"import os, pathlib, sys, tempfile\nfiles = {files!r}\n"
        "home = pathlib.Path(tempfile.mkdtemp())\n"
        "for name, text in files.items():\n"
        "    (home / name).parent.mkdir(parents=True, exist_ok=True)\n"
        "    (home / name).write_text(text)\n"
        "os.chdir(home)\nsys.path.insert(0, str(home))\n"
        f"from {PACKAGE.replace('/', '.')}.attacker import main\nmain()\n"
    )
    try:
        desk = bob.open(server)
        output = desk.run(desk.kernel(), cell, within_s=200)
    finally:
        bob.stop(server)
        jobs.api.post(f"/projects/rival/jobs/{alive.key[0]}/cancel").raise_for_status()
        jobs.end_of(alive.key[0])
        for left in (gone, alive):
            Path("/dev/shm", left.mark).unlink(missing_ok=True)  # noqa: S108
            ipc_remove(left)
    lines = [line for line in output.splitlines() if line.startswith("attacked ")]
    results = {finding["attack"]: finding for finding in (json.loads(line[9:]) for line in lines)}
    assert set(results) == set(NAMES), output
    check(place.level, results)
