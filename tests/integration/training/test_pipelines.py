"""Pipelines of Python functions on a real node, with a control worker that is killed."""

import os
import secrets
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import copy
from typing import Any

import pytest

import slipway as sdk
from slipway.pipeline_runs import run_pipeline
from slipway.schemas.pipelines import PipelineRunOut
from tests.integration.training.test_sweeps import TINY
from tests.portals import RunningPortal, running_slipway
from tests.processes import ROOT, children_of, command_of, wait_for

pytestmark = pytest.mark.integration

FLOW = '''
"""Train on the digits of scikit-learn."""

import json
from pathlib import Path
from typing import NamedTuple

import slipway

class Trained(NamedTuple):
    model: Path
    accuracy: float


@slipway.step
def prepare(rows: int) -> Path:
    from sklearn.datasets import load_digits

    digits = load_digits()
    path = Path("digits.json")
    path.write_text(json.dumps([digits.data[:rows].tolist(), digits.target[:rows].tolist()]))
    return path


@slipway.step(retries=1)
def train(data: Path, neighbours: int) -> Trained:
    from sklearn.neighbors import KNeighborsClassifier

    rows, labels = json.loads(data.read_text())
    half = len(rows) // 2
    model = KNeighborsClassifier(neighbours).fit(rows[:half], labels[:half])
    Path("model.txt").write_text(str(neighbours))
    return Trained(Path("model.txt"), float(model.score(rows[half:], labels[half:])))


@slipway.step
def best(models: list, accuracies: list[float]) -> dict:
    accuracy = max(accuracies)
    model = models[accuracies.index(accuracy)]
    return {"accuracy": accuracy, "neighbours": int(Path(model).read_text())}


@slipway.pipeline
def digits(rows: int = 400, neighbours: list[int] = [1, 30]):
    trained = train.map(neighbours=neighbours)(prepare(rows))
    best(trained.model, trained.accuracy)
'''
CHAIN = """
import slipway


@slipway.step(tier="cpu-tiny")
def add(value: int) -> int:
    return value + 1


@slipway.pipeline
def chain(value: int = 0):
    for _ in range(4):
        value = add(value)
"""


@pytest.fixture
def slipway(tmp_path: Path) -> Iterator[RunningPortal]:
    """A Slipway with a node and a cheap tier."""
    with running_slipway(tmp_path) as portal:
        with portal.client("root") as root:
            root.post("/projects", json={"name": "Vision"})
            root.post("/tiers", json=TINY).raise_for_status()
        yield portal


def _control_of(slipway: RunningPortal) -> int:
    """Return the process id of the control worker, 0 while there is none."""
    children = children_of(slipway.program.pid)
    return next((pid for pid in children if "workers.control" in command_of(pid)), 0)


def _run(client: sdk.Client, folder: Path, project: str, **options: Any) -> PipelineRunOut:
    started = run_pipeline(
        folder / "flow.py", folder=folder, project=project, client=client, **options
    )
    ended = client.pipelines.wait(started.id, project=project, timeout_s=400)
    assert ended.state == "succeeded", [
        (
            step.step,
            step.explanation,
            step.job and b"".join(client.jobs.logs(step.job, project=project)),
        )
        for step in ended.steps
    ]
    return ended


@pytest.mark.thorough
def test_the_second_run_of_a_pipeline_is_reused(
    whole_slipway: Callable[[], RunningPortal], tmp_path: Path
) -> None:
    slipway, project = whole_slipway(), f"flows-{secrets.token_hex(3)}"
    (tmp_path / "flow.py").write_text(FLOW)
    with sdk.Client(slipway.url, slipway.tokens["root"]) as client:
        client.projects.create(project, slug=project)
        first = _run(client, tmp_path, project)
        result = first.steps[-1].outputs["result"]
        assert result["neighbours"] == 1
        assert result["accuracy"] > 0.8
        assert first.cost_nano_usd > 0
        second = _run(client, tmp_path, project)
        assert {step.state for step in second.steps} == {"reused"}, second
        assert second.steps[-1].outputs["result"] == result
        assert second.cost_nano_usd == 0
        third = _run(client, tmp_path, project, parameters={"neighbours": [1, 5]})
        states = {(step.step, step.item): str(step.state) for step in third.steps}
        assert (states["prepare", None], states["train", 0]) == ("reused", "reused")
        assert (states["train", 1], states["best", None]) == ("succeeded", "succeeded")


@pytest.mark.thorough
def test_no_step_is_lost_or_run_twice_while_the_worker_is_killed(
    slipway: RunningPortal, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("code")
    (folder / "flow.py").write_text(CHAIN)
    with (
        sdk.Client(slipway.url, slipway.tokens["root"]) as client,
        slipway.client("root") as root,
    ):
        started = run_pipeline(folder / "flow.py", folder=folder, project="vision", client=client)
        seen: set[str] = set()

        def has_moved() -> bool:
            """Kill the worker whenever a step has moved. Returns whether the run has ended."""
            run = client.pipelines.get(started.id, project="vision")
            now = {f"{step.step} {step.state}" for step in run.steps}
            if now - seen:
                seen.update(now)
                control = _control_of(slipway)
                if control:
                    os.kill(control, signal.SIGKILL)
            return run.state.has_ended

        wait_for(has_moved, "end of the run", within_s=400)
        run = client.pipelines.get(started.id, project="vision")
        assert run.state == "succeeded", run
        assert [step.outputs for step in run.steps] == [{"result": n} for n in range(1, 5)]
        assert [step.attempt for step in run.steps] == [1] * 4
        jobs = root.get("/projects/vision/jobs?limit=200").json()["items"]
        assert len(jobs) == 4


@pytest.mark.thorough
def test_flows_that_came_from_other_tools_run_as_pipelines(
    whole_slipway: Callable[[], RunningPortal], tmp_path: Path
) -> None:
    slipway, project = whole_slipway(), f"moved-{secrets.token_hex(3)}"
    outputs: dict[tuple[str, str], dict[str, Any]] = {}
    with sdk.Client(slipway.url, slipway.tokens["root"]) as client:
        client.projects.create(project, slug=project)
        for tool in ("kubeflow", "metaflow"):
            folder = tmp_path / tool
            folder.mkdir()
            copy(ROOT / "examples" / "flows" / tool / "flow.py", folder)
            for step in _run(client, folder, project).steps:
                outputs[tool, step.step] = step.outputs
    # As the flows print them in Kubeflow Pipelines 2.17 and Metaflow 2.19.
    assert outputs["kubeflow", "report"] == {"result": "good enough: 0.978"}
    best = {"depth": 4, "accuracy": pytest.approx(0.933, abs=1e-3)}
    assert outputs["metaflow", "choose"] == best
