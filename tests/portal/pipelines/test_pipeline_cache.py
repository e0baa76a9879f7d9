"""Reuse of outputs, plans, and steps that register and promote models."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from portal.experiments.models import ModelVersion, Run
from portal.experiments.services.job_runs import run_id_of
from portal.pipelines.models import PipelineRun, StepRun
from portal.training.models import Job
from slipway.schemas.accounts import Scope
from tests.personas import Api, Personas, json_of
from tests.portal.pipelines.pipeline_runs import (
    PLAN,
    RUNS,
    advance,
    body_of,
    end_job,
    finish_three,
    keep_file,
    shown,
    start,
    states_of,
    step,
    steps_of,
    three_steps,
)
from tests.portal.registry.store import FILES
from tests.portal.workloads.machines import Machine


@pytest.fixture(autouse=True)
def _artifacts(settings: Settings, tmp_path: Path) -> None:
    settings.SLIPWAY_ARTIFACTS_URL = f"file://{tmp_path / 'artifacts'}"


@pytest.fixture
def first(bob: Api, machine: Machine) -> str:
    """A run of the usual steps that has succeeded."""
    run_id = start(bob, three_steps())
    finish_three(bob, machine, run_id)
    return run_id


def _plan(api: Api, steps: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    answer = api.post(PLAN, body_of(api, steps, **changes))
    assert answer.status_code == 200, answer.content
    plan: dict[str, Any] = json_of(answer)
    return plan


def _actions(plan: dict[str, Any]) -> list[tuple[str, str]]:
    return [(row["step"], row["action"]) for row in plan["steps"]]


@pytest.mark.postgres
def test_equal_work_is_not_done_again(bob: Api, first: str) -> None:
    second = start(bob, three_steps())
    assert set(states_of(bob, second).values()) == {"reused"}
    run = shown(bob, second)
    assert (run["state"], run["cost_nano_usd"]) == ("succeeded", 0)
    assert steps_of(bob, second)["train"]["outputs"] == {"accuracy": 0.9}
    assert steps_of(bob, second)["train"]["reused_from"] == first
    assert Job.objects.count() == 3


@pytest.mark.parametrize(
    ("changes", "step_fields", "states"),
    [
        ({"force": True}, {}, ["running", "waiting", "waiting"]),
        ({"parameters": {"rows": 11}}, {}, ["running", "waiting", "waiting"]),
        ({}, {"args": ["--fast"]}, ["reused", "reused", "running"]),
        ({}, {"cache": False}, ["reused", "reused", "running"]),
        ({}, {"procs": 2}, ["reused", "reused", "running"]),
        ({}, {"outputs": {"x": {}}}, ["reused", "reused", "running"]),
        ({}, {"retries": 2, "max_hours": 2.0, "tags": {"team": "a"}}, ["reused"] * 3),
    ],
)
def test_what_differs_is_done_again(
    bob: Api, first: str, changes: dict[str, Any], step_fields: dict[str, Any], states: list[str]
) -> None:
    second = start(bob, three_steps(**step_fields), **changes)
    assert list(states_of(bob, second).values()) == states


@pytest.mark.postgres
def test_outputs_that_were_deleted_are_not_reused(bob: Api, machine: Machine, first: str) -> None:
    prepare = steps_of(bob, first)["prepare"]["job"]
    file = keep_file(prepare, "d.csv")
    shutil.rmtree(file.parent)
    second = start(bob, three_steps())
    assert states_of(bob, second)["prepare"] == "running"
    bob.post(f"{RUNS}/{second}/cancel")
    advance()
    keep_file(prepare, "d.csv")
    Run.objects.filter(pk=run_id_of(prepare)).update(lifecycle_stage="deleted")
    assert _actions(_plan(bob, three_steps()))[0] == ("prepare", "run")
    Run.objects.filter(pk=run_id_of(prepare)).update(lifecycle_stage="active")
    assert _actions(_plan(bob, three_steps()))[0] == ("prepare", "reuse")


def test_outputs_of_another_project_are_not_reused(
    bob: Api, machine: Machine, first: str, people: Personas
) -> None:
    PipelineRun.objects.filter(pk=first).update(project=people.other)
    assert _actions(_plan(bob, three_steps()))[0] == ("prepare", "run")


def test_a_plan_says_what_is_reused_and_what_the_rest_costs(bob: Api, first: str) -> None:
    plan = _plan(bob, three_steps())
    assert _actions(plan) == [("prepare", "reuse"), ("train", "reuse"), ("compare", "reuse")]
    assert (plan["reused"], plan["to_run"], plan["nano_usd_per_hour"]) == (3, 0, 0)
    assert plan["expected_nano_usd"] == 0
    plan = _plan(bob, three_steps(), force=True)
    assert _actions(plan) == [("prepare", "run"), ("train", "depends"), ("compare", "depends")]
    assert (plan["reused"], plan["to_run"]) == (0, 3)
    assert plan["nano_usd_per_hour"] == 3 * 3_600_000_000
    assert plan["steps"][1]["explanation"] == "It depends on prepare."
    steps = [
        *three_steps(when="${steps.train.outputs.accuracy} > 0.99"),
        step("on", run_on="failure", after=["train"]),
        {"name": "ok", "kind": "approval"},
        step("many", foreach=[1, 2], inputs={"x": "${item}"}),
    ]
    plan = _plan(bob, steps)
    assert dict(_actions(plan)) == {
        "prepare": "reuse",
        "train": "reuse",
        "compare": "skip",
        "on": "skip",
        "ok": "wait",
        "many": "run",
    }
    assert next(row for row in plan["steps"] if row["step"] == "many")["items"] == 2
    assert Job.objects.count() == 3  # nothing was started


def _modelled() -> list[dict[str, Any]]:
    return [
        step("train", outputs={"model": {"type": "file"}}),
        {
            "name": "register",
            "kind": "register",
            "model": "digits",
            "source": "${steps.train.outputs.model}",
        },
        {
            "name": "promote",
            "kind": "promote",
            "model": "digits",
            "version": "${steps.register.outputs.version}",
            "alias": "champion",
        },
    ]


def _train(bob: Api, machine: Machine, run_id: str) -> None:
    job = steps_of(bob, run_id)["train"]["job"]
    end = tuple(f"model/{name}" for name in FILES)
    end_job(job, machine, {"model": "model"}, files=end)


@pytest.mark.parametrize("missing", [Scope.MODELS_PROMOTE, Scope.EXPERIMENTS_WRITE])
def test_a_token_that_may_not_promote_or_register_starts_no_pipeline_that_does(
    people: Personas, bob: Api, machine: Machine, missing: Scope
) -> None:
    """The token of a notebook server may submit jobs, but promote nothing."""
    scopes = [scope for scope in Scope if scope not in (Scope.ADMIN, missing)]
    limited = Api.of(people.bob, scopes=scopes)
    body = body_of(bob, _modelled())
    refused = limited.post(RUNS, body)
    assert (refused.status_code, json_of(refused)["code"]) == (403, "missing_scope")
    run_id = start(bob, _modelled())
    assert bob.post(f"{RUNS}/{run_id}/cancel").status_code == 200
    assert limited.post(f"{RUNS}/{run_id}/resume").status_code == 403
    assert limited.post(RUNS, body_of(bob, [step("train")])).status_code == 201


def _numbers(bob: Api) -> list[int]:
    """Return the numbers of the versions of the model."""
    versions = json_of(bob.get("projects/vision/models/digits/versions"))["items"]
    return [version["version"] for version in versions]


@pytest.mark.thorough
def test_a_model_is_registered_once_and_promoted(bob: Api, machine: Machine) -> None:
    run_id = start(bob, _modelled())
    _train(bob, machine, run_id)
    rows = steps_of(bob, run_id)
    assert shown(bob, run_id)["state"] == "succeeded", rows
    assert rows["register"]["outputs"] == {"version": 1, "uri": "models:/digits/1"}
    (move,) = json_of(bob.get("projects/vision/models/digits/history"))["items"]
    assert (move["target"], move["version"]) == ("champion", 1)
    second = start(bob, _modelled())
    assert states_of(bob, second) == {
        "train": "reused",
        "register": "reused",
        "promote": "succeeded",  # it is there already
    }
    assert _numbers(bob) == [1]
    ModelVersion.objects.update(current_stage="Deleted_Internal")
    third = start(bob, _modelled())
    assert steps_of(bob, third)["register"]["outputs"]["version"] == 2


@pytest.mark.postgres
def test_a_registration_that_was_interrupted_is_not_repeated(
    bob: Api, machine: Machine, people: Personas
) -> None:
    train, register, _ = _modelled()
    run_id = start(bob, [train, {"name": "ok", "kind": "approval"}, register | {"after": ["ok"]}])
    _train(bob, machine, run_id)
    # A worker has registered it, and was killed before the step moved on.
    mark = f"{StepRun.objects.get(run=run_id, step='register').pk}-1"
    source = steps_of(bob, run_id)["train"]["outputs"]["model"]
    body = {"source": source, "tags": {"slipway.step": mark}}
    made = bob.post("projects/vision/models/digits/versions", body)
    assert made.status_code == 201, made.content
    mia = Api.of(people.mia)
    mia.post(f"{RUNS}/{run_id}/steps/ok/decision", {"verdict": "approve"})
    advance()
    assert steps_of(bob, run_id)["register"]["outputs"]["version"] == 1
    assert _numbers(bob) == [1]


def test_a_closed_gate_fails_the_step_with_the_reason(bob: Api, machine: Machine) -> None:
    steps = _modelled()
    steps[2] = {key: value for key, value in steps[2].items() if key != "alias"}
    run_id = start(bob, [*steps[:2], steps[2] | {"stage": "Nowhere"}])
    _train(bob, machine, run_id)
    row = steps_of(bob, run_id)["promote"]
    assert row["state"] == "failed"
    assert "Nowhere" in row["explanation"]
    assert row["next_step"]


def test_a_preemptible_step_costs_less_and_is_the_same_work(bob: Api, first: str) -> None:
    steps = [entry | {"preemptible": True} for entry in three_steps()]
    assert {action for _, action in _actions(_plan(bob, steps))} == {"reuse"}
    plans = [_plan(bob, [step("alone", preemptible=cheap)]) for cheap in (False, True)]
    prices = [plan["nano_usd_per_hour"] for plan in plans]
    assert prices == [3_600_000_000, 1_800_000_000]
    start(bob, [step("alone", preemptible=True)])
    advance()
    assert Job.objects.order_by("-pk")[0].workload.is_preemptible
