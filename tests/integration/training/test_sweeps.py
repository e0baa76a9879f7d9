"""Sweeps on a real node: trials are jobs of an unmodified script that logs with plain MLflow."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

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
TINY = {
    "name": "CPU tiny",
    "slug": "cpu-tiny",
    "resources": {"cpu_millis": 250, "memory_bytes": 512 * 2**20},
    "nano_usd_per_hour": 20_000_000,
}
_SWEEPS = "/projects/vision/sweeps"


@pytest.fixture
def slipway(tmp_path: Path) -> Iterator[RunningPortal]:
    """A Slipway with a node and a cheap tier."""
    with running_slipway(tmp_path) as portal:
        with portal.client("root") as root:
            root.post("/projects", json={"name": "Vision"})
            root.post("/tiers", json=TINY).raise_for_status()
        yield portal


def _start(root: httpx.Client) -> str:
    """Upload the script and start a sweep of four trials, two at once. Returns its id."""
    answer = root.post(
        "/projects/vision/snapshots",
        content=tar_of({"train.py": SCRIPT.encode()}),
        headers={"Content-Type": "application/octet-stream"},
    )
    job = JobIn(
        script="train.py", tier="cpu-tiny", snapshot=answer.raise_for_status().json()["digest"]
    )
    body = sweep_body(
        job,
        name="digits",
        parameters={"lr": "loguniform(1e-4,1e-1)", "layers": "choice(2,4,8)"},
        metric="accuracy:max",
        trials=4,
        parallel=2,
        algorithm="tpe",
    )
    answer = root.post(_SWEEPS, json=body.model_dump(mode="json"))
    sweep_id: str = answer.raise_for_status().json()["id"]
    return sweep_id


def _ended(root: httpx.Client, sweep_id: str) -> dict[str, Any]:
    """Wait for the end of a sweep, check its trials, and return it."""
    address = f"{_SWEEPS}/{sweep_id}"
    wait_for(
        lambda: root.get(address).json()["state"] != "running", "end of the sweep", within_s=180
    )
    sweep: dict[str, Any] = root.get(address).json()
    trials = root.get(f"{address}/trials").json()["items"]
    assert (sweep["state"], sweep["complete"]) == ("finished", 4), sweep["explanation"]
    assert sorted(trial["number"] for trial in trials) == [0, 1, 2, 3]
    for trial in trials:
        values = trial["parameters"]
        assert trial["value"] == pytest.approx(values["lr"] * 3 + int(values["layers"]))
    assert sweep["best"]["value"] == max(trial["value"] for trial in trials)
    assert sweep["cost_nano_usd"] > 0
    jobs = root.get("/projects/vision/jobs").json()["items"]
    assert len(jobs) == 4  # each trial ran once
    return sweep


def test_a_sweep_of_four_trials_finds_the_best(slipway: RunningPortal) -> None:
    with slipway.client("root") as root:
        _ended(root, _start(root))


@pytest.mark.thorough
def test_a_sweep_survives_the_death_of_control(slipway: RunningPortal) -> None:
    with slipway.client("root") as root:
        sweep_id = _start(root)
        for count in (1, 3):
            wait_for(
                lambda count=count: root.get(f"{_SWEEPS}/{sweep_id}").json()["started"] >= count,
                "trials",
                within_s=90,
            )
            pid = next(
                child
                for child in children_of(slipway.program.pid)
                if "workers.control" in command_of(child)
            )
            os.kill(pid, signal.SIGKILL)
        _ended(root, sweep_id)
