"""`slipway run`: what a client has logged, from the command line."""

import secrets
from typing import Any

import httpx

from slipway.cli.exits import ExitCode
from tests.live import LivePortal
from tests.slipway.cli.conftest import Cli


def log_run(portal: LivePortal, project: str, name: str, lr: str, loss: float) -> str:
    """Log a run as any MLflow client does; returns its id."""
    with httpx.Client(
        base_url=f"{portal.url}/mlflow/{project}/api/2.0/mlflow/runs",
        headers={"Authorization": f"Bearer {portal.tokens['alice']}"},
        timeout=30,
    ) as client:
        body: dict[str, Any] = {"experiment_id": "0", "run_name": name, "start_time": 1}
        made = client.post("/create", json=body)
        assert made.is_success, made.text
        run_id = str(made.json()["run"]["info"]["run_id"])
        metric = {"key": "loss", "value": loss, "step": 1, "timestamp": 1}
        params = [{"key": "lr", "value": lr}, {"key": "opt", "value": "sgd"}]
        logged = client.post(
            "/log-batch", json={"run_id": run_id, "metrics": [metric], "params": params}
        )
        assert logged.is_success, logged.text
    return run_id


def test_runs_are_listed_compared_deleted_and_taken_back(alice: Cli, portal: LivePortal) -> None:
    project = f"runs-{secrets.token_hex(4)}"
    assert alice("project", "create", project, "--slug", project).code == 0
    here = ("--project", project)
    assert "No run was found" in alice("run", "list", *here).err
    first = log_run(portal, project, "first", "0.1", 0.5)
    second = log_run(portal, project, "second", "0.2", 0.25)
    ran = alice("run", "list", "--filter", "metrics.loss < 0.3", "--quiet", *here)
    assert ran.out.split() == [second]
    ordered = alice("run", "list", "--order", "metrics.loss", "--json", *here)
    assert [run["name"] for run in ordered.document["items"]] == ["second", "first"]
    wrong = alice("run", "list", "--filter", "loss < 1", "--json", *here)
    assert wrong.code == ExitCode.INVALID
    assert "At position 1" in wrong.problem["detail"]
    assert alice("run", "show", first, "--json", *here).document["params"]["lr"] == "0.1"
    compared = alice("run", "compare", first, second, *here)
    assert ["first", "RUNNING", "0.1", "0.5"] in compared.rows
    assert "Identical: opt=sgd" in compared.err
    assert "missing" not in compared.err
    partial = alice("run", "compare", first, second, "0" * 32, *here)
    assert "1 of the 3 runs is missing here." in partial.err
    (experiment,) = alice("run", "experiments", "--json", *here).document["items"]
    assert experiment["runs"] == 2
    assert "There is no artifact" in alice("run", "artifacts", first, *here).err
    assert alice("run", "delete", first, "--quiet", *here).out.split() == [first]
    assert alice("run", "list", "--quiet", *here).out.split() == [second]
    assert alice("run", "restore", first, "--quiet", *here).out.split() == [first]
    deleted = alice("run", "delete", first, "0" * 32, *here)
    assert "1 run in the trash. 1 of the 2 runs was not changed." in deleted.err
    freed = alice("run", "empty-trash", "--yes", "--json", *here).document
    assert freed == {"runs": 1, "files": 0, "size_bytes": 0}
