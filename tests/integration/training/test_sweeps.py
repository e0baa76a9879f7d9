"""Sweeps on a real node: trials are jobs of an unmodified script that logs with plain MLflow."""

import os
import secrets
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from portal.experiments.services.job_runs import run_id_of
from slipway.resources.sweeps import sweep_body
from slipway.schemas.training import JobIn
from tests.portal.training.jobs import tar_of
from tests.portals import RunningPortal, running_slipway
from tests.processes import children_of, command_of, wait_for

pytestmark = pytest.mark.integration

SCRIPT = """
import argparse, mlflow
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--layers", type=int)
arguments = parser.parse_args()
for step in range(3):
    mlflow.log_metric("accuracy", arguments.lr * (step + 1) + arguments.layers, step=step)
"""
CLIMBERS = """
import argparse, time, mlflow
from slipway import job
parser = argparse.ArgumentParser()
parser.add_argument("--q", type=float)
q = parser.parse_args().q
saved = job.current().checkpoint_dir / "step"
start = int(saved.read_text()) if saved.exists() else 0
mlflow.log_metric("started_at", start, step=job.current().attempt)
for step in range(start, 24):
    mlflow.log_metric("accuracy", q + (0.4 * step if q == 8 else 0), step=step)
    saved.parent.mkdir(parents=True, exist_ok=True)
    saved.write_text(str(step + 1))
    time.sleep(0.4)
"""
TINY = {
    "name": "CPU tiny",
    "slug": "cpu-tiny",
    "resources": {"cpu_millis": 250, "memory_bytes": 512 * 2**20},
    "nano_usd_per_hour": 20_000_000,
}


@pytest.fixture
def slipway(tmp_path: Path) -> Iterator[RunningPortal]:
    """A Slipway with a node and a cheap tier."""
    with running_slipway(tmp_path) as portal:
        with portal.client("root") as root:
            root.post("/projects", json={"name": "Vision"})
            root.post("/tiers", json=TINY).raise_for_status()
        yield portal


def _start(
    root: httpx.Client,
    script: str = SCRIPT,
    project: str = "vision",
    tier: str = "cpu-tiny",
    **changes: Any,
) -> str:
    """Upload the script and start a sweep of four trials, two at once. Returns its id."""
    answer = root.post(
        f"/projects/{project}/snapshots",
        content=tar_of({"train.py": script.encode()}),
        headers={"Content-Type": "application/octet-stream"},
    )
    job = JobIn(script="train.py", tier=tier, snapshot=answer.raise_for_status().json()["digest"])
    usual: dict[str, Any] = {
        "name": "digits",
        "parameters": {"lr": "loguniform(1e-4,1e-1)", "layers": "choice(2,4,8)"},
        "metric": "accuracy:max",
        "trials": 4,
        "parallel": 2,
        "algorithm": "tpe",
    }
    body = sweep_body(job, **(usual | changes))
    answer = root.post(f"/projects/{project}/sweeps", json=body.model_dump(mode="json"))
    sweep_id: str = answer.raise_for_status().json()["id"]
    return sweep_id


def _has_started(root: httpx.Client, sweep_id: str, count: int) -> bool:
    """Return whether a sweep has started `count` trials."""
    started: int = _read(root, f"/projects/vision/sweeps/{sweep_id}")["started"]
    return started >= count


def _read(client: httpx.Client, address: str) -> dict[str, Any]:
    """Get an object, again for as long as a portal that was killed is not back."""

    def answer() -> httpx.Response | None:
        try:
            return client.get(address)
        except httpx.TransportError:
            return None

    response = wait_for(answer, f"an answer for {address}", within_s=60)
    assert response is not None
    assert response.is_success, response.text
    content: dict[str, Any] = response.json()
    return content


def _ended(root: httpx.Client, sweep_id: str, project: str = "vision") -> dict[str, Any]:
    """Wait for the end of a sweep, check its trials, and return it."""
    address = f"/projects/{project}/sweeps/{sweep_id}"
    wait_for(lambda: _read(root, address)["state"] != "running", "end of the sweep", within_s=300)
    sweep = _read(root, address)
    trials = root.get(f"{address}/trials").json()["items"]
    assert (sweep["state"], sweep["complete"]) == ("finished", 4), sweep["explanation"]
    assert sorted(trial["number"] for trial in trials) == [0, 1, 2, 3]
    for trial in trials:
        values = trial["parameters"]
        assert trial["value"] == pytest.approx(values["lr"] * 3 + int(values["layers"]))
    assert sweep["best"]["value"] == max(trial["value"] for trial in trials)
    assert sweep["cost_nano_usd"] > 0
    jobs = root.get(f"/projects/{project}/jobs").json()["items"]
    assert [job["workload"]["attempt"] for job in jobs] == [1] * 4  # each trial ran once
    return sweep


@pytest.mark.thorough
def test_a_sweep_of_four_trials_finds_the_best(whole_slipway: Callable[[], RunningPortal]) -> None:
    project = f"sweeps-{secrets.token_hex(3)}"
    with whole_slipway().client("root") as root:
        root.post("/projects", json={"name": project, "slug": project}).raise_for_status()
        _ended(root, _start(root, project=project, tier="cpu-small"), project)


@pytest.mark.thorough
def test_a_trial_stopped_early_resumes_from_its_checkpoint_and_wins(slipway: RunningPortal) -> None:
    with slipway.client("root") as root:
        sweep_id = _start(
            root,
            CLIMBERS,
            parameters={"q": "choice(9,8,1,2)"},
            algorithm="grid",
            parallel=1,
            scheduler="asha",
            min_values=2,
            eta=2,
        )
        address = f"/projects/vision/sweeps/{sweep_id}"
        wait_for(
            lambda: root.get(address).json()["state"] != "running", "end of the sweep", within_s=600
        )
        sweep = root.get(address).json()
        trials = {trial["number"]: trial for trial in root.get(f"{address}/trials").json()["items"]}
        states = [trials[number]["state"] for number in range(4)]
        assert sweep["state"] == "finished", sweep["explanation"]
        assert states == ["complete", "complete", "pruned", "pruned"]
        assert (sweep["best"]["number"], sweep["best"]["value"]) == (1, pytest.approx(17.2))
        assert "is not the best" in trials[2]["explanation"]
        best = root.get(f"/projects/vision/jobs/{trials[1]['job']}").json()
        assert best["workload"]["attempt"] == 2
        run = root.get(f"/projects/vision/runs/{run_id_of(trials[1]['job'])}").json()
        assert run["metrics"]["started_at"] >= 2
        assert sweep["saved_nano_usd"] > 0


@pytest.mark.thorough
@pytest.mark.parametrize(
    "process", ["workers.control", "workers.node_agent", "manage.py portal", "redis-server"]
)
def test_a_sweep_survives_the_death_of_a_process(slipway: RunningPortal, process: str) -> None:
    with slipway.client("root") as root:
        sweep_id = _start(root)
        for count in (1, 3):
            wait_for(partial(_has_started, root, sweep_id, count), f"trial {count}", within_s=120)
            pid = next(
                child for child in children_of(slipway.program.pid) if process in command_of(child)
            )
            os.kill(pid, signal.SIGKILL)
        _ended(root, sweep_id)
