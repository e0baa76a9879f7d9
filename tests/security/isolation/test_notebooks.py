"""The same attacks from a cell of a notebook, against all of Slipway and another project's job."""

import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.jobs import Jobs
from tests.notebooks import PASSWORD, Person, running_notebooks
from tests.portals import RunningPortal
from tests.processes import wait_for
from tests.security.isolation.arena import (
    KINDS,
    PACKAGE,
    SMOKE,
    VICTIM,
    Neighbour,
    canary,
    common_folders,
    hostile_files,
    ipc_remove,
)
from tests.security.isolation.attacks import NAMES
from tests.security.isolation.test_jobs import check
from workers.launcher.processes import descendants, start_ticks

pytestmark = [pytest.mark.slow, pytest.mark.integration]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPortal]:
    with running_notebooks(tmp_path_factory.mktemp("isolation")) as found:
        yield found


def plant(data_dir: Path) -> list[str]:
    """Put secrets beside what the platform keeps; answers all paths an attacker would want."""
    (data_dir / "keys" / "canary.key").write_text(canary("installation"))
    kept = [path for path in data_dir.rglob("*") if path.is_file() and path.parent.name == "keys"]
    return [*map(str, kept), *map(str, data_dir.glob("*.sqlite3"))]


def neighbour(running: RunningPortal) -> Neighbour:
    """Start a job of another project that is full of secrets."""
    api = running.client("root")
    api.post("/projects", json={"name": "Rival"}).raise_for_status()
    jobs = Jobs(api, project="rival")
    mark, sysv = f"neighbour-{secrets.token_hex(8)}", secrets.randbelow(1 << 30) + 1
    env = {f"CANARY_{kind.upper()}": canary(kind) for kind in KINDS}
    prelude = f"import os, sys\nos.environ.update({env!r})\n"
    prelude += f"sys.argv[1:] = [{mark!r}, '{sysv}', 'stay']\n"
    job = jobs.submit(prelude + VICTIM)

    def placed() -> Any:
        lines = [line for line in jobs.log(job).splitlines() if line.startswith("placed ")]
        return json.loads(lines[0].removeprefix("placed ")) if lines else None

    places = wait_for(placed, "the neighbour", within_s=90)
    return Neighbour((job, 1), mark, sysv, places)


def targets(running: RunningPortal, one: Neighbour) -> dict[str, Any]:
    """All that there is to attack in a whole Slipway."""
    data = running.installation.data_dir
    paths = [*plant(data), *one.places["paths"]]
    pids = [running.program.pid, *descendants(running.program.pid)]
    sockets = [str(path) for path in data.rglob("*") if path.is_socket()]
    return {
        "paths": paths,
        "folders": [str(data), str(data / "keys"), *one.places["folders"]],
        "names": ["keys", "canary.key", f"{one.mark}.txt"],
        "leftovers": [],
        "processes": [
            {"name": f"process {pid}", "pid": pid, "ticks": start_ticks(pid)} for pid in pids
        ],
        "sockets": [*sockets, *one.places["sockets"]],
        "abstract": [one.mark],
        "ports": one.places["ports"],
        "hosts": one.places["hosts"],
        "shm": [one.mark],
        "sysv": [one.sysv],
        "queues": [f"/{one.mark}"],
        "key": one.mark,
        "inodes": [Path(path).stat().st_ino for path in paths[:3]],
        "control_groups": ["/sys/fs/cgroup", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/unified"],
        "programs": [str(Path(__file__).parents[3])],
        "executed": [str(data), str(data / "keys"), *one.places["folders"]],
        "environment": [],
        "own_state": [],
        "common": common_folders(),
        "machine": {},
        "agent_uid": 0,
        "rootless": False,
    }


@pytest.mark.torch
def test_a_cell_of_a_notebook(running: RunningPortal) -> None:
    one = neighbour(running)
    bob = Person(running, "bob", PASSWORD)
    orders = json.dumps({"attacks": NAMES, "targets": targets(running, one)})
    files = hostile_files() | {"targets.json": orders}
    cell = (
        f"import os, pathlib, sys, tempfile\nfiles = {files!r}\n"
        "home = pathlib.Path(tempfile.mkdtemp())\n"
        "for name, text in files.items():\n"
        "    (home / name).parent.mkdir(parents=True, exist_ok=True)\n"
        "    (home / name).write_text(text)\n"
        "os.chdir(home)\nsys.path.insert(0, str(home))\n"
        f"from {PACKAGE.replace('/', '.')}.attacker import main\nmain()\n"
    )
    server = bob.ready("isolation")
    try:
        desk = bob.open(server)
        said = desk.run(desk.kernel(), cell, within_s=200)
    finally:
        bob.stop(server)
        jobs = Jobs(running.client("root"), project="rival")
        jobs.api.post(f"/projects/rival/jobs/{one.key[0]}/cancel").raise_for_status()
        jobs.end_of(one.key[0])
        ipc_remove(one)
    lines = [line for line in said.splitlines() if line.startswith("attacked ")]
    found = {one["attack"]: one for one in (json.loads(line[9:]) for line in lines)}
    assert set(found) == set(NAMES), said
    check(SMOKE, found)
