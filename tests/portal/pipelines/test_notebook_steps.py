"""Steps that are notebooks, through the REST API and the page: parameters, outputs, reuse."""

import json
from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from portal.experiments.services.job_runs import run_id_of
from portal.training.models import Job
from tests.notebooks import notebook_of
from tests.personas import Api, Personas, json_of
from tests.portal.pipelines.pipeline_runs import (
    CODE,
    PLAN,
    RUNS,
    advance,
    body_of,
    end_job,
    keep_file,
    shown,
    step,
    steps_of,
)
from tests.portal.training.jobs import take_code
from tests.portal.web.conftest import Browse
from tests.portal.web.reading import html_of, text_of
from tests.portal.workloads.machines import Machine

EXECUTED = "step-outputs/report.ipynb"


@pytest.fixture(autouse=True)
def _artifacts(settings: Settings, tmp_path: Path) -> None:
    settings.SLIPWAY_ARTIFACTS_URL = f"file://{tmp_path / 'artifacts'}"


def _report(**fields: Any) -> dict[str, Any]:
    return {
        "name": "report",
        "kind": "notebook",
        "script": "reports/report.ipynb",
        "tier": "small",
        "inputs": {"rows": "${parameters.rows}"},
    } | fields


def _body(api: Api, *steps: dict[str, Any], **changes: Any) -> dict[str, Any]:
    notebook = json.dumps(notebook_of("rows = 1", "print(rows)")["content"]).encode()
    code = take_code(api, CODE | {"reports/report.ipynb": notebook})
    return body_of(api, list(steps), **changes) | {"snapshot": code}


def _start(api: Api, *steps: dict[str, Any]) -> str:
    answer = api.post(RUNS, _body(api, *steps))
    assert answer.status_code == 201, answer.content
    advance()
    run_id: str = json_of(answer)["id"]
    return run_id


def _planned(api: Api, **fields: Any) -> dict[str, Any]:
    answer = api.post(PLAN, _body(api, _report(**fields)))
    assert answer.status_code == 200, answer.content
    (planned,) = json_of(answer)["steps"]
    step: dict[str, Any] = planned
    return step


@pytest.mark.postgres
def test_a_notebook_gets_parameters_and_its_results_are_outputs(
    bob: Api, machine: Machine, people: Personas, browse: Browse
) -> None:
    steps = (
        _report(outputs={"accuracy": {"type": "number"}}),
        step(
            "send",
            inputs={
                "report": "${steps.report.outputs.notebook}",
                "run": "${steps.report.outputs.run}",
                "accuracy": "${steps.report.outputs.accuracy}",
            },
        ),
    )
    run_id = _start(bob, *steps)
    job_id = steps_of(bob, run_id)["report"]["job"]
    job = json_of(bob.get(f"projects/vision/jobs/{job_id}"))
    assert (job["script"], job["params"]) == ("reports/report.ipynb", {"rows": "10"})
    assert job["args"] == [f"--keep={EXECUTED}"]
    assert EXECUTED in job["keep"]
    end_job(job_id, machine, {"accuracy": 0.9}, files=(EXECUTED,))
    run = run_id_of(job_id)
    outputs = steps_of(bob, run_id)["report"]["outputs"]
    executed = f"runs:/{run}/files/{EXECUTED}"
    assert outputs == {"notebook": executed, "run": run, "accuracy": 0.9}
    send = json_of(bob.get(f"projects/vision/jobs/{steps_of(bob, run_id)['send']['job']}"))
    assert send["params"] == {"report": executed, "run": run, "accuracy": "0.9"}
    page = browse(people.vera).get(f"/p/vision/pipelines/{run_id}")
    assert "report notebook succeeded" in text_of(page)
    assert html_of(page).count(f'href="/p/vision/jobs/{job_id}"') == 2
    assert html_of(page).count(f'href="/p/vision/runs/{run}"') == 2


def test_a_notebook_that_keeps_no_results_fails_its_step(bob: Api, machine: Machine) -> None:
    run_id = _start(bob, _report())
    end_job(steps_of(bob, run_id)["report"]["job"], machine)
    row = steps_of(bob, run_id)["report"]
    assert row["state"] == "failed"
    assert "the output notebook, step-outputs/report.ipynb, is not among the files" in str(
        row["explanation"]
    )
    assert row["next_step"]


def test_a_notebook_that_fails_is_retried_and_fails_its_step(bob: Api, machine: Machine) -> None:
    run_id = _start(bob, _report(retries=1))
    for attempt in (1, 2):
        row = steps_of(bob, run_id)["report"]
        assert (row["state"], row["attempt"]) == ("running", attempt)
        end_job(row["job"], machine, reason="exit")
    assert shown(bob, run_id)["state"] == "failed"


def test_equal_notebooks_are_reused_while_their_results_exist(bob: Api, machine: Machine) -> None:
    run_id = _start(bob, _report())
    job_id = steps_of(bob, run_id)["report"]["job"]
    end_job(job_id, machine, files=(EXECUTED,))
    planned = _planned(bob)
    assert (planned["action"], planned["reused_from"]) == ("reuse", run_id)
    for fields in ({"inputs": {"rows": 3}}, {"cache": False}):
        planned = _planned(bob, **fields)
        assert planned["action"] == "run"
        assert planned["quote"]["nano_usd_per_hour"] > 0
    keep_file(job_id, EXECUTED).unlink()
    planned = _planned(bob)
    assert planned["action"] == "run"


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"script": "train.py"}, "script", "train.py of step report is no notebook."),
        ({"script": "gone.ipynb"}, "script", "gone.ipynb"),
        ({"args": ["--verify"]}, "args", "A step of kind notebook has no args."),
        ({"procs": 2}, "procs", "A step of kind notebook has no procs."),
        ({"outputs": {"run": {}}}, "outputs.run", "has the output run"),
    ],
)
def test_what_can_be_no_notebook_is_refused_before_the_run(
    bob: Api, machine: Machine, fields: dict[str, Any], field: str, words: str
) -> None:
    answer = bob.post(RUNS, _body(bob, _report(**fields)))
    assert answer.status_code == 422, answer.content
    problem = json_of(answer)
    assert problem["field"] == f"steps.report.{field}", problem
    assert words in problem["detail"]
    assert problem["next_step"]
    assert Job.objects.count() == 0
