"""Steps that are sweeps, through the REST API: values, outputs, ends, reuse and cost."""

from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from portal.experiments.models import Run
from portal.experiments.services.job_runs import run_id_of
from portal.pipelines.services.pipeline_progress import advance_all
from portal.sweeps.models import Sweep
from portal.sweeps.services.progress import advance_all as advance_sweeps
from portal.training.models import Job
from portal.workloads.services.desired import desired_for
from tests.personas import Api, Personas, json_of
from tests.portal.pipelines.pipeline_runs import (
    PLAN,
    RUNS,
    advance,
    body_of,
    end_job,
    keep_file,
    shown,
    start,
    states_of,
    step,
    steps_of,
)
from tests.portal.pipelines.sweep_steps import by_lr, finish_sweep, sweep_of, sweep_step
from tests.portal.sweeps.trials import SWEEPS, end_trials, trials_of
from tests.portal.workloads.machines import Machine


@pytest.fixture(autouse=True)
def _artifacts(settings: Settings, tmp_path: Path) -> None:
    settings.SLIPWAY_ARTIFACTS_URL = f"file://{tmp_path / 'artifacts'}"


def _refusal(api: Api, *steps: dict[str, Any], **changes: Any) -> dict[str, Any]:
    answer = api.post(RUNS, body_of(api, list(steps), **changes))
    assert answer.status_code == 422, answer.content
    problem: dict[str, Any] = json_of(answer)
    assert problem["next_step"]
    return problem


@pytest.mark.postgres
def test_a_sweep_has_values_of_earlier_steps_and_passes_its_best_trial_on(
    bob: Api, machine: Machine
) -> None:
    steps = [
        step("prepare", outputs={"most": {"type": "number"}}),
        sweep_step(
            parameters={"lr": "uniform(0,${steps.prepare.outputs.most})", "layers": [2, 4]},
            inputs={"rows": "${parameters.rows}"},
            trials="${parameters.trials}",
            constraints=["${parameters.bound}"],
            outputs={"size": {"type": "number"}},
        ),
        step(
            "use",
            inputs={
                "lr": "${steps.tune.outputs.parameters}",
                "best": "${steps.tune.outputs.best_value}",
                "run": "${steps.tune.outputs.best_run}",
                "sweep": "${steps.tune.sweep}",
                "size": "${steps.tune.outputs.size}",
            },
        ),
    ]
    body = body_of(bob, steps)
    body["pipeline"]["parameters"] |= {"trials": {"default": 2}, "bound": {"default": "size<=9"}}
    run_id = json_of(bob.post(RUNS, body))["id"]
    advance()
    assert states_of(bob, run_id) == {"prepare": "running", "tune": "waiting", "use": "waiting"}
    end_job(steps_of(bob, run_id)["prepare"]["job"], machine, {"most": 0.5})
    sweep = json_of(bob.get(f"{SWEEPS}/{sweep_of(bob, run_id)}"))
    assert (sweep["name"], sweep["trials"], sweep["state"]) == ("digits-tune", 2, "running")
    assert sweep["parameters"]["lr"]["high"] == 0.5
    assert sweep["parameters"]["layers"]["choices"] == ["2", "4"]
    assert sweep["constraints"] == [{"metric": "size", "op": "<=", "bound": 9.0}]
    assert Sweep.objects.get().created_by.email == "bob@example.org"
    finish_sweep(bob, machine, run_id, lambda trial: {**by_lr(trial), "size": 7.0})
    best = max(trials_of(bob, sweep["id"]), key=lambda trial: trial["value"])
    job = json_of(bob.get(f"projects/vision/jobs/{best['job']}"))
    assert job["params"] == {"rows": "10"} | {
        name: str(value) for name, value in best["parameters"].items()
    }
    assert job["tags"] == {"pipeline": "digits"}
    row = steps_of(bob, run_id)["tune"]
    assert row["outputs"] == {
        "best_value": best["value"],
        "parameters": best["parameters"],
        "best_job": best["job"],
        "best_run": run_id_of(best["job"]),
        "size": 7.0,
    }
    assert row["cost_nano_usd"] == json_of(bob.get(f"{SWEEPS}/{sweep['id']}"))["cost_nano_usd"]
    use = json_of(bob.get(f"projects/vision/jobs/{steps_of(bob, run_id)['use']['job']}"))
    assert use["params"]["best"] == str(best["value"])
    assert use["params"]["run"] == run_id_of(best["job"])
    assert use["params"]["sweep"] == sweep["id"]


@pytest.mark.parametrize("is_kept", [True, False])
def test_files_of_the_best_trial_are_outputs(bob: Api, machine: Machine, is_kept: bool) -> None:
    declared = {"model": {"type": "file", "path": "model.txt"}}
    run_id = start(bob, [sweep_step(outputs=declared)])
    advance_sweeps()
    advance()
    desired_for(node=machine.node)  # makes the runs
    for trial in trials_of(bob, sweep_of(bob, run_id)) if is_kept else ():
        keep_file(trial["job"], "model.txt")
    finish_sweep(bob, machine, run_id)
    row = steps_of(bob, run_id)["tune"]
    if is_kept:
        run = row["outputs"]["best_run"]
        assert row["outputs"]["model"] == f"runs:/{run}/files/model.txt"
    else:
        assert row["state"] == "failed"
        assert "model.txt, is not among the files it has kept" in row["explanation"]


def test_a_resumed_run_does_not_repeat_a_sweep_that_succeeded(bob: Api, machine: Machine) -> None:
    run_id = start(bob, [sweep_step(), step("use", after=["tune"])])
    finish_sweep(bob, machine, run_id)
    end_job(steps_of(bob, run_id)["use"]["job"], machine, reason="exit")
    assert states_of(bob, run_id) == {"tune": "succeeded", "use": "failed"}
    assert bob.post(f"{RUNS}/{run_id}/resume").status_code == 200
    advance()
    assert states_of(bob, run_id) == {"tune": "succeeded", "use": "running"}
    assert Sweep.objects.count() == 1


@pytest.mark.postgres
def test_a_cancelled_run_stops_its_sweep_and_a_resumed_one_starts_another(
    bob: Api, machine: Machine
) -> None:
    run_id = start(bob, [sweep_step(parallel=1)])
    advance_sweeps()
    first = sweep_of(bob, run_id)
    assert bob.post(f"{RUNS}/{run_id}/cancel").status_code == 200
    advance_all()
    sweep = json_of(bob.get(f"{SWEEPS}/{first}"))
    assert sweep["state"] == "stopped"
    assert sweep["explanation"] == "Stopped with the pipeline digits."
    assert states_of(bob, run_id) == {"tune": "running"}  # a job of it still stops
    assert json_of(bob.post(f"{RUNS}/{run_id}/resume"))["code"] == "run_stopping"
    advance_sweeps()
    advance()
    assert states_of(bob, run_id) == {"tune": "cancelled"}
    assert {job.workload.state for job in Job.objects.select_related("workload")} == {"stopped"}
    assert bob.post(f"{RUNS}/{run_id}/resume").status_code == 200
    advance()
    row = steps_of(bob, run_id)["tune"]
    assert (row["state"], row["attempt"]) == ("running", 2)
    assert row["sweep"] != first
    finish_sweep(bob, machine, run_id)
    costs = [json_of(bob.get(f"{SWEEPS}/{pk}"))["cost_nano_usd"] for pk in (first, row["sweep"])]
    assert shown(bob, run_id)["cost_nano_usd"] == sum(costs)


def test_a_sweep_that_somebody_stops_fails_its_step(bob: Api, machine: Machine) -> None:
    run_id = start(bob, [sweep_step()])
    bob.post(f"{SWEEPS}/{sweep_of(bob, run_id)}/stop")
    advance()
    row = steps_of(bob, run_id)["tune"]
    assert (row["state"], row["explanation"]) == ("failed", "Stopped by Bob.")
    assert row["next_step"] == "Resume the run, which starts another sweep."


@pytest.mark.parametrize(
    ("fields", "metrics", "reason", "words"),
    [
        ({}, {}, "completed", "logged no metric accuracy. It logged no metrics."),
        ({}, {}, "exit", "The first 3 trials failed."),
        (
            {"trials": 2},
            {},
            "exit",
            "Its sweep has finished without a best trial: 2 failed. Trial 1: ",
        ),
        (
            {"constraints": ["size<=1"]},
            {"accuracy": 1.0, "size": 3.0},
            "completed",
            "without a best trial: all 3 complete trials violate size <= 1.",
        ),
        (
            {"outputs": {"recall": {"type": "number"}}},
            {"accuracy": 1.0},
            "completed",
            "The job of its best trial succeeded, but logged no metric recall.",
        ),
    ],
)
def test_a_sweep_without_a_best_trial_fails_its_step_with_the_reason(
    bob: Api,
    machine: Machine,
    fields: dict[str, Any],
    metrics: dict[str, float],
    reason: str,
    words: str,
) -> None:
    run_id = start(bob, [sweep_step(**fields)])
    finish_sweep(bob, machine, run_id, lambda _: metrics, reason)
    row = steps_of(bob, run_id)["tune"]
    assert row["state"] == "failed", row
    assert words in row["explanation"]
    assert row["next_step"]
    assert words in shown(bob, run_id)["explanation"]


def test_a_paused_sweep_says_why_and_its_step_goes_on_with_it(bob: Api, machine: Machine) -> None:
    run_id = start(bob, [sweep_step()])
    sweep = sweep_of(bob, run_id)
    bob.post(f"{SWEEPS}/{sweep}/pause")
    advance()
    row = steps_of(bob, run_id)["tune"]
    assert (row["state"], row["explanation"]) == ("running", "Paused by Bob.")
    bob.post(f"{SWEEPS}/{sweep}/resume")
    finish_sweep(bob, machine, run_id)
    assert shown(bob, run_id)["state"] == "succeeded"


def _action(api: Api, *steps: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return the last step of a plan."""
    answer = api.post(PLAN, body_of(api, list(steps), **changes))
    assert answer.status_code == 200, answer.content
    planned: dict[str, Any] = json_of(answer)["steps"][-1]
    return planned


@pytest.mark.postgres
def test_equal_sweeps_are_reused_while_the_run_of_their_best_trial_exists(
    bob: Api, machine: Machine
) -> None:
    run_id = start(bob, [sweep_step()])
    finish_sweep(bob, machine, run_id)
    second = start(bob, [sweep_step(parallel=1, retries=1), step("use", after=["tune"])])
    row = steps_of(bob, second)["tune"]
    assert (row["state"], row["reused_from"]) == ("reused", run_id)
    assert row["outputs"] == steps_of(bob, run_id)["tune"]["outputs"]
    sweep = sweep_of(bob, run_id)
    for fields, action in (
        ({}, "reuse"),
        ({"trials": 4}, "run"),
        ({"seed": 1}, "run"),
        ({"parameters": {"lr": "uniform(0,2)"}}, "run"),
        ({"cache": False}, "run"),
        ({"warm_start": [sweep], "algorithm": "tpe"}, "run"),
    ):
        assert _action(bob, sweep_step(**fields))["action"] == action, fields
    assert _action(bob, sweep_step(), force=True)["action"] == "run"
    Run.objects.filter(pk=row["outputs"]["best_run"]).update(lifecycle_stage="deleted")
    assert _action(bob, sweep_step())["action"] == "run"
    assert Sweep.objects.count() == 1


def test_a_plan_has_the_quote_of_the_sweep(bob: Api, machine: Machine) -> None:
    body = {
        "job": {"script": "train.py", "tier": "small", "snapshot": body_of(bob, [])["snapshot"]},
        "name": "digits-tune",
        "parameters": {"lr": {"type": "float", "low": 0, "high": 1}},
        "metric": {"name": "accuracy"},
        "trials": 3,
        "parallel": 3,
    }
    quote = json_of(bob.post(f"{SWEEPS}/quote", body))
    planned = _action(bob, sweep_step())
    assert planned["quote"] is None
    for name in ("trials", "parallel", "nano_usd_per_hour", "expected_nano_usd"):
        assert planned["sweep_quote"][name] == quote[name], name
    later = sweep_step(inputs={"x": "${steps.prepare.outputs.x}"}, trials=5)
    plan = json_of(bob.post(PLAN, body_of(bob, [step("prepare", outputs={"x": {}}), later])))
    assert plan["steps"][1]["action"] == "depends"
    assert plan["steps"][1]["sweep_quote"]["trials"] == 5
    small = plan["steps"][0]["quote"]["nano_usd_per_hour"]
    assert plan["nano_usd_per_hour"] == 4 * small  # the job, and three trials at once
    assert plan["expected_nano_usd"] is None


def test_items_of_a_fan_out_are_sweeps(bob: Api, machine: Machine) -> None:
    many = sweep_step(foreach=[0.1, 0.2], parameters={"lr": "uniform(0,${item})"}, trials=1)
    run_id = start(bob, [many])
    advance()
    items = [row for row in shown(bob, run_id)["steps"] if row["item"] is not None]
    advance_sweeps()
    advance()
    for row in items:
        end_trials(bob, row["sweep"], machine, by_lr)
    advance_sweeps()
    advance()
    row = steps_of(bob, run_id)["tune"]
    assert row["state"] == "succeeded"
    assert len(row["outputs"]["best_value"]) == 2
    assert Sweep.objects.count() == 2


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"parameters": {"lr": "fast"}}, "parameters.lr", "fast is no range"),
        ({"parameters": {}}, "parameters", "has no parameters"),
        ({"metric": "accuracy"}, "metric", "has no goal"),
        ({"trials": 0}, "trials", "greater than or equal to 1"),
        ({"tier": "none"}, "tier", "none"),
        ({"inputs": {"lr": 1}}, "parameters.lr", "in parameters and in inputs"),
        ({"parameters": {"lr": "int(1,${parameters.rows}"}}, "parameters.lr", "is no range"),
        ({"trials": "${parameters.name}"}, "trials", "valid integer"),
        (
            {"algorithm": "grid", "parameters": {"a": "int(1,9999)", "b": "int(1,9)"}},
            "parameters",
            "more than 10000 combinations",
        ),
        ({"outputs": {"model": {"type": "file"}}}, "outputs.model", "has no path"),
        ({"script": "gone.py"}, "script", "gone.py"),
    ],
)
def test_what_can_be_no_sweep_is_refused_before_the_run(
    bob: Api, machine: Machine, fields: dict[str, Any], field: str, words: str
) -> None:
    body = body_of(bob, [sweep_step(**fields)])
    body["pipeline"]["parameters"]["name"] = {"default": "digits"}
    for address in (RUNS, PLAN):
        answer = bob.post(address, body)
        assert answer.status_code == 422, answer.content
        problem = json_of(answer)
        assert problem["field"] == f"steps.tune.{field}", problem
        assert words in problem["detail"]
        assert problem["next_step"]
    assert Sweep.objects.count() == 0


def test_a_range_that_an_earlier_step_spoils_fails_the_step(bob: Api, machine: Machine) -> None:
    spoiled = sweep_step(parameters={"lr": "uniform(3,${steps.prepare.outputs.most})"})
    run_id = start(bob, [step("prepare", outputs={"most": {"type": "number"}}), spoiled])
    end_job(steps_of(bob, run_id)["prepare"]["job"], machine, {"most": 1})
    row = steps_of(bob, run_id)["tune"]
    assert row["state"] == "failed"
    assert "low is 3, which is more than high, 1" in row["explanation"]
    assert row["next_step"].endswith("then resume the run.")
    assert Sweep.objects.count() == 0


def test_a_sweep_of_another_project_is_no_warm_start(
    bob: Api, machine: Machine, people: Personas
) -> None:
    run_id = start(bob, [sweep_step()])
    finish_sweep(bob, machine, run_id)
    sweep = sweep_of(bob, run_id)
    Sweep.objects.update(project=people.other)
    second = start(bob, [sweep_step(algorithm="tpe", warm_start=[sweep])])
    row = steps_of(bob, second)["tune"]
    assert row["state"] == "failed"
    assert sweep in row["explanation"]
