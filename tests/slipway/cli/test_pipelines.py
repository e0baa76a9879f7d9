"""Pipelines from the command line and in the SDK, against a real portal."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from slipway.cli.exits import ExitCode
from slipway.pipeline_runs import run_pipeline
from tests.live import LivePortal
from tests.portal.training.lab import Lab, client_of
from tests.slipway.cli.conftest import Cli

FLOW = """
import slipway

@slipway.step(tier="TIER")
def prepare(rows: int) -> int:
    return rows

@slipway.step(tier="TIER")
def train(rows: int) -> float:
    return rows / 10

@slipway.pipeline
def digits(rows: int = 10):
    ok = slipway.pipelines.approval("Go?", approvers="owner")
    train.options(after=[ok])(prepare(rows))
"""

SWEEP = """
steps:
  tune:
    kind: sweep
    script: flow.py
    tier: TIER
    parameters: {lr: "uniform(0,1)"}
    metric: accuracy:max
    trials: 5
    parallel: 2
"""


@pytest.fixture(scope="module")
def lab(portal: LivePortal) -> Iterator[Lab]:
    """A node that runs nothing, and its tier."""
    made = Lab(portal)
    yield made
    made.end()


def _project(alice: Cli) -> str:
    project = f"flows-{secrets.token_hex(4)}"
    assert alice("project", "create", project, "--slug", project).code == 0
    return project


def _flow(folder: Path, tier: str) -> tuple[str, str, str]:
    (folder / "flow.py").write_text(FLOW.replace("TIER", tier))
    return (str(folder / "flow.py"), "--code", str(folder))


def test_a_graph_is_drawn_without_a_server(alice: Cli, tmp_path: Path) -> None:
    source = _flow(tmp_path, "cpu")
    shown = alice("pipeline", "graph", *source)
    assert shown.code == 0, shown.err
    assert "train     flow.py::train; after approval, prepare (result)" in shown.out
    assert "flowchart TD" in alice("pipeline", "graph", *source, "--format", "mermaid").out
    assert alice("pipeline", "graph", *source, "--json").document["name"] == "digits"
    wrong = alice("pipeline", "graph", *source, "--format", "svg", "--json")
    assert (wrong.code, wrong.problem["field"]) == (ExitCode.USAGE, "format")


def test_what_is_wrong_is_named_with_the_next_step(alice: Cli, lab: Lab, tmp_path: Path) -> None:
    project = _project(alice)
    place = ("--project", project, "--json")
    source = _flow(tmp_path, lab.tier)
    gone = alice("pipeline", "run", "gone.yaml", *place)
    assert (gone.code, gone.problem["field"]) == (ExitCode.INVALID, "file")
    typed = alice("pipeline", "run", *source, "--param", "rows=many", *place)
    assert (typed.code, typed.problem["field"]) == (ExitCode.INVALID, "parameters.rows")
    unknown = alice("pipeline", "plan", *source, "--param", "lines=1", *place)
    assert unknown.problem["field"] == "parameters.lines"
    bad_tier = alice("pipeline", "plan", *_flow(tmp_path, "none"), *place)
    assert bad_tier.problem["field"] == "steps.prepare.tier"
    assert alice("pipeline", "show", "ppr_none", *place).code == ExitCode.NOT_FOUND
    assert alice("pipeline", "list", *place).document["items"] == []


def test_a_run_is_planned_started_shown_approved_and_cancelled(
    alice: Cli, portal: LivePortal, lab: Lab, tmp_path: Path
) -> None:
    project = _project(alice)
    place = ("--project", project)
    source = _flow(tmp_path, lab.tier)
    planned = alice("pipeline", "plan", *source, *place)
    assert planned.code == 0, planned.err
    assert "It depends on approval, prepare." in planned.out
    assert "0 reused, 3 to run: no history yet." in planned.err
    assert alice("pipeline", "plan", *source, *place, "--json").document["to_run"] == 3
    started = alice("pipeline", "run", *source, "--param", "rows=7", *place, "--json")
    assert started.code == 0, started.err
    run_id = started.document["id"]
    assert started.document["parameters"] == {"rows": 7}
    shown = alice("pipeline", "show", run_id, *place)
    assert "rows=7" in shown.out
    assert run_id in alice("pipeline", "list", *place, "--quiet").out
    early = alice("pipeline", "approve", run_id, "approval", *place, "--json")
    assert early.problem["code"] == "not_waiting_for_approval"  # no worker has asked
    cancelled = alice("pipeline", "cancel", run_id, "--yes", *place, "--json")
    assert cancelled.document["state"] == "cancelled"
    resumed = alice("pipeline", "resume", run_id, *place, "--json")
    assert resumed.problem["code"] == "run_stopping"
    with client_of(portal, "alice") as client:
        again = run_pipeline(source[0], folder=tmp_path, project=project, client=client)
        with pytest.raises(TimeoutError, match="goes on"):
            client.pipelines.wait(again.id, project=project, timeout_s=0)
        assert len(list(client.pipelines.list(project=project))) == 2


def test_a_plan_has_the_price_of_all_trials_of_a_sweep(
    alice: Cli, lab: Lab, tmp_path: Path
) -> None:
    place = ("--project", _project(alice), "--code", str(tmp_path))
    _flow(tmp_path, lab.tier)
    source = tmp_path / "tune.yaml"
    source.write_text(SWEEP.replace("TIER", lab.tier))
    planned = alice("pipeline", "plan", str(source), *place)
    assert planned.code == 0, planned.err
    assert "an hour, 5 trials" in planned.out
    (step,) = alice("pipeline", "plan", str(source), *place, "--json").document["steps"]
    assert step["sweep_quote"]["parallel"] == 2
    assert "tune  sweep of flow.py" in alice("pipeline", "graph", str(source)).out
