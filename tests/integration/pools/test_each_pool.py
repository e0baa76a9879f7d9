"""The same commands on own nodes, Slurm, Ray and Kubernetes: only `--pool` differs.

A script on two machines, a sweep, a notebook server, and a job that the engine takes its machine
from. The scripts are those of `examples/`, and nothing in them knows where they run.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.forwarder import forwarded
from tests.integration.pools.jobs import JOBS, log_of, wait_for_state, workload_of
from tests.kubernetes_cluster import reason_without, running_kubernetes
from tests.notebooks import PASSWORD, Person, running_notebooks
from tests.portals import RunningPortal
from tests.ports import free_ports
from tests.processes import ROOT, wait_for
from tests.ray_cluster import running_ray
from tests.slurm_cluster import missing_programs, running_slurm

pytestmark = pytest.mark.integration
EXAMPLES = ROOT / "examples"
# Saves each step, as training does, and goes on where it was.
STEPS = """
import time
from slipway import job

saved = job.current().checkpoint_dir / "step"
first = int(saved.read_text()) if saved.exists() else 0
print("starts at step", first, flush=True)
saved.parent.mkdir(parents=True, exist_ok=True)
for step in range(first + 1, first + 4):
    part = saved.with_suffix(".part")
    part.write_text(str(step))
    part.replace(saved)
    print("saved step", step, flush=True)
if not first:
    time.sleep(600)
"""
_TIER = {
    "name": "Half a CPU",
    "slug": "half",
    "resources": {"cpu_millis": 500, "memory_bytes": 1024**3},
    "nano_usd_per_hour": 20_000_000,
}
_WITHIN_S = 300.0
_ENDS = ("succeeded", "failed", "stopped", "lost")


@dataclass
class Place:
    """A Slipway, the words that name the pool, and what takes a machine from a running job."""

    portal: RunningPortal
    folder: Path
    pool: list[str]
    take_machine: Callable[["Place", str], None]
    # On own nodes a job says that it may be moved. Elsewhere the engine decides.
    preemptible: tuple[str, ...] = ()

    def run(self, *words: str) -> str:
        """Run one command of `slipway` and return its output."""
        environ = {
            "SLIPWAY_URL": self.portal.url,
            "SLIPWAY_TOKEN": self.portal.tokens["bob"],
            "SLIPWAY_CONFIG_DIR": str(self.folder / "config"),
            "PYTHONPATH": str(ROOT / "platform"),
        }
        command = [sys.executable, "-m", "slipway", *words, "--project", "vision"]
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=os.environ | environ,
            capture_output=True,
            text=True,
            timeout=_WITHIN_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start(self, *words: str) -> Any:
        """Run one command of `slipway` in the pool and return what it has made."""
        return json.loads(self.run(*words, *self.pool, "--json"))

    def submit(self, script: str, *words: str) -> str:
        """Submit a job with a script and return its id."""
        code = self.folder / "code"
        code.mkdir(exist_ok=True)
        (code / "train.py").write_text(script)
        job = self.start("train", "train.py", "--code", str(code), *words)
        return str(job["workload"]["id"])


def _own_nodes(stack: ExitStack, folder: Path) -> Place:
    """The node of the installation. Urgent work takes the machine from preemptible work."""
    return Place(_slipway(stack, folder), folder, [], _submit_urgent, ("--preemptible",))


def _submit_urgent(place: Place, job: str) -> None:
    with place.portal.client("bob") as bob:
        tier = max(
            bob.get("/tiers").json()["items"],
            key=lambda tier: tier["resources"]["cpu_millis"],
        )
    place.submit("print('urgent')\n", "--tier", tier["slug"])


def _slurm(stack: ExitStack, folder: Path) -> Place:
    """A Slurm cluster of two nodes. A partition of a higher priority preempts the other."""
    cluster = stack.enter_context(
        running_slurm(
            folder / "cluster",
            more_lines=[
                "PreemptType=preempt/partition_prio",
                "PreemptMode=CANCEL",
                "PartitionName=main Nodes=n[1-2] Default=YES MaxTime=60 GraceTime=30 State=UP",
                "PartitionName=urgent Nodes=n[1-2] PriorityTier=9 PreemptMode=OFF State=UP",
            ],
        )
    )
    settings = {
        "partition": "main",
        "slurm_conf": str(cluster.conf),
        "folder": str(folder / "nodes"),
    }

    def preempt(place: Place, job: str) -> None:
        cluster.run("sbatch", "--partition=urgent", "--nodes=2", "--exclusive", "--wrap=true")

    return _place(stack, folder, "slurm", settings, preempt)


def _ray(stack: ExitStack, folder: Path) -> Place:
    """A Ray cluster. It takes no machine from a job, but a machine can die."""
    cluster = stack.enter_context(running_ray(folder / "cluster", cpus=2))
    settings = {
        "address": cluster.address,
        "token_file": str(cluster.token_file),
        "ray_python": str(cluster.python),
        "folder": str(folder / "nodes"),
    }
    return _place(stack, folder, "ray", settings, _kill_agent)


def _kill_agent(place: Place, job: str) -> None:
    (pid,) = (
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if b"--allocation\0" in (line := _read(path)) and bytes(place.folder) in line
    )
    os.kill(pid, signal.SIGKILL)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _kubernetes(stack: ExitStack, folder: Path) -> Place:
    """A Kubernetes cluster of one node, which is drained."""
    cluster = stack.enter_context(running_kubernetes(folder / "cluster"))
    port, notebooks = free_ports(2)
    portal = _slipway(
        stack,
        folder,
        SLIPWAY_PUBLIC_URL=f"http://{cluster.address}:{port}",
        SLIPWAY_NOTEBOOKS_PUBLIC_URL=f"http://{cluster.notebooks_address}:{notebooks}",
    )
    at = portal.installation
    ports = {port: at.portal_port, at.relay_port: at.relay_port}
    stack.enter_context(forwarded(cluster.address, ports))
    stack.enter_context(forwarded(cluster.notebooks_address, {notebooks: at.notebooks_port}))
    _create_pool(portal, "kubernetes", cluster.settings(has_shared_folder=True))

    def drain(place: Place, job: str) -> None:
        (pod,) = [pod for pod in cluster.pods() if pod.status.phase == "Running"]
        cluster.cordon(True)
        cluster.evict(pod.metadata.name)
        with portal.client("bob") as bob:
            wait_for(
                lambda: "were unschedulable" in workload_of(bob, job)["explanation"],
                "next allocation",
                within_s=120,
            )
        cluster.cordon(False)

    return Place(portal, folder, ["--pool", "cluster"], drain)


def _place(
    stack: ExitStack,
    folder: Path,
    engine: str,
    settings: dict[str, Any],
    take_machine: Callable[[Place, str], None],
) -> Place:
    """Return a Slipway with a pool of the engine."""
    portal = _slipway(stack, folder)
    _create_pool(portal, engine, settings | {"portal_url": portal.url})
    return Place(portal, folder, ["--pool", "cluster"], take_machine)


def _slipway(stack: ExitStack, folder: Path, **environ: Any) -> RunningPortal:
    """Start all of Slipway, with a project and a tier."""
    environ |= {f"SLIPWAY_EMBEDDED_{part}": "true" for part in ("GATEWAY", "RELAY", "TRACKING")}
    portal = stack.enter_context(running_notebooks(folder, **environ))
    with portal.client("root") as root:
        root.post("/tiers", json=_TIER).raise_for_status()
    portal.program.wait_for_text("relay ready", within_s=120)
    return portal


def _create_pool(portal: RunningPortal, engine: str, settings: dict[str, Any]) -> None:
    with portal.client("root") as root:
        pool = {"name": "cluster", "engine": engine, "settings": settings}
        answer = root.post("/pools", json=pool)
        assert answer.is_success, answer.text
        # The node of the installation takes no work.
        (node,) = root.get("/nodes").json()["items"]
        root.post(f"/nodes/{node['name']}/cordon", json={}).raise_for_status()


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(_own_nodes, id="own", marks=[pytest.mark.thorough]),
        pytest.param(
            _slurm,
            id="slurm",
            marks=[
                pytest.mark.thorough,
                pytest.mark.skipif(bool(missing_programs()), reason=f"{missing_programs()}"),
            ],
        ),
        pytest.param(_ray, id="ray", marks=[pytest.mark.slow]),
        pytest.param(
            _kubernetes,
            id="kubernetes",
            marks=[
                pytest.mark.kubernetes,
                pytest.mark.skipif(bool(reason_without()), reason=reason_without() or "-"),
            ],
        ),
    ],
)
def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    """A Slipway where the work runs in one engine."""
    with ExitStack() as stack:
        yield request.param(stack, tmp_path_factory.mktemp("each"))


def test_a_script_trains_on_two_machines(place: Place) -> None:
    code = ["--code", str(EXAMPLES / "frameworks" / "pytorch")]
    job = place.start("train", "train.py", *code, "--nodes", "2", "--tier", "half")["workload"]
    with place.portal.client("bob") as bob:
        ended = wait_for_state(bob, job["id"], *_ENDS, within_s=_WITHIN_S)
        log = log_of(bob, job["id"])
        assert ended["state"] == "succeeded", (ended["explanation"], log)
        assert "epoch 2 loss" in log
        (version,) = bob.get("/projects/vision/models/digits-pytorch/versions").json()["items"]
        assert version["version"] == 1


def test_an_endpoint_predicts(place: Place, request: pytest.FixtureRequest) -> None:
    """With the model of the test before."""
    if "kubernetes" in request.node.callspec.id:
        # Its environment would be built; test_kubernetes_servers.py has a model without one.
        pytest.skip("pods of the test cluster reach no index of packages")
    place.start("endpoint", "create", "digits", "digits-pytorch", "--tier", "half")
    with place.portal.client("bob") as bob:
        try:
            wait_for(
                lambda: bob.get("/projects/vision/endpoints/digits").json()["state"] == "serving",
                "replica",
                within_s=_WITHIN_S,
            )
        except AssertionError as error:
            replicas = bob.get("/projects/vision/endpoints/digits/replicas").json()
            raise AssertionError(f"{error}: {replicas}") from None
        rows = json.dumps({"inputs": [[0.5] * 64]})
        answer = json.loads(place.run("endpoint", "predict", "digits", rows, "--json"))
        assert len(answer[0]) == 10
        bob.post("/projects/vision/endpoints/digits/pause", json={}).raise_for_status()


def test_a_sweep_ends_with_a_best_trial(place: Place) -> None:
    code = ["--code", str(EXAMPLES / "digits")]
    search = ["--param", "lr=choice(0.001,0.01)", "--metric", "accuracy:max", "--trials", "2"]
    sweep = place.start(
        "sweep", "start", "tune.py", *code, *search, "--algorithm", "grid", "--tier", "half"
    )
    place_of = f"/projects/vision/sweeps/{sweep['id']}"
    with place.portal.client("bob") as bob:
        wait_for(
            lambda: bob.get(place_of).json()["state"] != "running",
            "end of the sweep",
            within_s=_WITHIN_S,
        )
        shown = bob.get(place_of).json()
        assert (shown["state"], shown["complete"]) == ("finished", 2), shown
        assert shown["best"]["value"] > 0.8


def test_a_notebook_server_runs_a_cell(place: Place) -> None:
    address = place.portal.installation.environ.get("SLIPWAY_PUBLIC_URL", "")
    person = Person(place.portal, "bob", PASSWORD, portal=address)
    pool = {"pool": "cluster"} if place.pool else {}
    server = person.launch("desk", tier="half", **pool)
    person.wait_for(server, "ready", within_s=_WITHIN_S)
    desk = person.open(server)
    assert desk.run(desk.kernel(), "print(6 * 7)").strip() == "42"
    person.stop(server)


def test_a_job_that_loses_its_machine_goes_on_at_its_last_step(place: Place) -> None:
    name = place.submit(STEPS, "--tier", "half", *place.preemptible)
    with place.portal.client("bob") as bob:
        wait_for(lambda: "saved step 3" in log_of(bob, name), "steps", within_s=_WITHIN_S)
        place.take_machine(place, name)
        ended = wait_for_state(bob, name, *_ENDS, within_s=_WITHIN_S)
        assert (ended["state"], ended["attempt"]) == ("succeeded", 2), ended
        again = bob.get(f"{JOBS}/{name}/logs", params={"rank": 0, "attempt": 2}).text
        assert "starts at step 3" in again
