"""Runs of pipelines through the REST API: order, values, fan-out, conditions, ends, approval."""

from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from portal.accounts.models import AuditEvent, Membership
from portal.experiments.services.job_runs import run_id_of
from portal.pipelines.models import PipelineRun
from portal.training.models import Job
from portal.workloads.models import Workload
from portal.workloads.tokens import token_of
from slipway.schemas.accounts import Role
from tests.personas import Api, Personas, json_of, service_account_of
from tests.portal.pipelines.pipeline_runs import (
    RUNS,
    advance,
    body_of,
    end_job,
    finish_three,
    report,
    shown,
    start,
    states_of,
    step,
    steps_of,
    three_steps,
)
from tests.portal.workloads.machines import Machine


@pytest.fixture(autouse=True)
def _artifacts(settings: Settings, tmp_path: Path) -> None:
    settings.SLIPWAY_ARTIFACTS_URL = f"file://{tmp_path / 'artifacts'}"


@pytest.mark.postgres
def test_steps_run_in_order_and_pass_values_and_files(bob: Api, machine: Machine) -> None:
    run_id = start(bob, three_steps(), parameters={"rows": 7})
    assert states_of(bob, run_id) == {
        "prepare": "running",
        "train": "waiting",
        "compare": "waiting",
    }
    prepare = steps_of(bob, run_id)["prepare"]["job"]
    job = json_of(bob.get(f"projects/vision/jobs/{prepare}"))
    assert job["params"] == {"rows": "7"}
    assert job["script"] == "steps.py::prepare"
    assert job["workload"]["name"] == "digits-prepare"
    assert job["tags"] == {"pipeline": "digits"}
    finish_three(bob, machine, run_id)
    run = shown(bob, run_id)
    assert (run["state"], run["owner"]) == ("succeeded", "bob@example.org")
    assert run["counts"] == {"succeeded": 3}
    rows = steps_of(bob, run_id)
    assert rows["prepare"]["outputs"] == {"data": f"runs:/{run_id_of(prepare)}/files/d.csv"}
    train = json_of(bob.get(f"projects/vision/jobs/{rows['train']['job']}"))
    assert train["params"] == {"data": rows["prepare"]["outputs"]["data"], "lr": "0.1"}
    compare = json_of(bob.get(f"projects/vision/jobs/{rows['compare']['job']}"))
    assert compare["params"] == {"accuracy": "0.9"}
    (listed,) = json_of(bob.get(RUNS))["items"]
    assert (listed["id"], listed["steps"], listed["counts"]) == (run_id, [], {"succeeded": 3})
    event = AuditEvent.objects.filter(verb="workload.submit").first()
    assert event is not None
    assert event.actor == "Pipeline digits"


def test_a_number_that_is_not_reported_is_the_metric(bob: Api, machine: Machine) -> None:
    steps = [
        step("train", script="train.py", outputs={"accuracy": {"type": "number"}}),
        step("use", inputs={"a": "${steps.train.outputs.accuracy}"}),
    ]
    run_id = start(bob, steps)
    end_job(steps_of(bob, run_id)["train"]["job"], machine, metrics={"accuracy": 0.75})
    assert steps_of(bob, run_id)["train"]["outputs"] == {"accuracy": 0.75}


def test_an_output_that_the_job_does_not_make_fails_its_step(bob: Api, machine: Machine) -> None:
    run_id = start(bob, three_steps())
    end_job(steps_of(bob, run_id)["prepare"]["job"], machine, {"data": "gone.csv"})
    row = steps_of(bob, run_id)["prepare"]
    assert row["state"] == "failed"
    assert "gone.csv, is not among the files it has kept" in row["explanation"]
    again = bob.post(f"{RUNS}/{run_id}/resume")
    assert again.status_code == 200, again.content
    advance()
    job = steps_of(bob, run_id)["prepare"]["job"]
    end_job(job, machine)
    row = steps_of(bob, run_id)["prepare"]
    assert "reported no output data" in row["explanation"]
    assert states_of(bob, run_id) == {"prepare": "failed", "train": "skipped", "compare": "skipped"}
    assert "Step prepare failed" in shown(bob, run_id)["explanation"]


@pytest.mark.postgres
def test_a_fan_out_runs_once_an_item_and_collects_the_outputs(bob: Api, machine: Machine) -> None:
    steps = [
        step(
            "train",
            foreach=[0.1, 0.2, 0.3],
            inputs={"lr": "${item}"},
            outputs={"accuracy": {"type": "number"}},
        ),
        step("best", inputs={"values": "${steps.train.outputs.accuracy}"}),
    ]
    run_id = start(bob, steps)
    advance()
    items = [row for row in shown(bob, run_id)["steps"] if row["item"] is not None]
    assert [(row["item"], row["state"]) for row in items] == [
        (number, "running") for number in range(3)
    ]
    for number, row in enumerate(items):
        end_job(row["job"], machine, {"accuracy": number / 10})
    row = steps_of(bob, run_id)["train"]
    assert (row["state"], row["outputs"]) == ("succeeded", {"accuracy": [0.0, 0.1, 0.2]})
    best = steps_of(bob, run_id)["best"]["job"]
    job = json_of(bob.get(f"projects/vision/jobs/{best}"))
    assert job["params"] == {"values": "[0.0, 0.1, 0.2]"}


def test_a_list_of_an_earlier_step_is_fanned_out_and_its_failure_resumed(
    bob: Api, machine: Machine
) -> None:
    steps = [
        step("split", outputs={"parts": {"type": "array"}}),
        step("part", foreach="${steps.split.outputs.parts}", inputs={"name": "${item}"}),
    ]
    run_id = start(bob, steps)
    end_job(steps_of(bob, run_id)["split"]["job"], machine, {"parts": ["a", "b"]})
    advance()

    def items() -> list[dict[str, Any]]:
        return [row for row in shown(bob, run_id)["steps"] if row["item"] is not None]

    end_job(items()[0]["job"], machine)
    end_job(items()[1]["job"], machine, reason="exit")
    assert "1 of 2 items failed. The first of them, number 2" in str(
        steps_of(bob, run_id)["part"]["explanation"]
    )
    bob.post(f"{RUNS}/{run_id}/resume")
    advance()
    assert [row["state"] for row in items()] == ["succeeded", "running"]
    end_job(items()[1]["job"], machine)
    assert shown(bob, run_id)["state"] == "succeeded"
    assert (shown(bob, run_id)["attempt"], items()[1]["attempt"]) == (2, 2)


@pytest.mark.parametrize(("accuracy", "state"), [(0.95, "running"), (0.5, "skipped")])
def test_a_condition_decides_about_a_step(
    bob: Api, machine: Machine, accuracy: float, state: str
) -> None:
    steps = three_steps(when="${steps.train.outputs.accuracy} >= 0.9")
    steps.append(step("after", after=["compare"]))
    run_id = start(bob, steps)
    end_job(steps_of(bob, run_id)["prepare"]["job"], machine, {"data": "d"}, files=("d",))
    end_job(steps_of(bob, run_id)["train"]["job"], machine, {"accuracy": accuracy})
    assert states_of(bob, run_id)["compare"] == state
    if state == "skipped":
        assert states_of(bob, run_id)["after"] == "skipped"
        assert shown(bob, run_id)["state"] == "succeeded"


def test_steps_on_failure_run_only_then(bob: Api, machine: Machine) -> None:
    steps = [
        step("train"),
        step("use", after=["train"]),
        step("tell", run_on="failure", after=["use"], inputs={"s": "${steps.train.state}"}),
        step("clean", run_on="always", after=["use"]),
    ]
    run_id = start(bob, steps)
    end_job(steps_of(bob, run_id)["train"]["job"], machine, reason="exit")
    assert states_of(bob, run_id) == {
        "train": "failed",
        "use": "skipped",
        "tell": "running",
        "clean": "running",
    }
    assert shown(bob, run_id)["state"] == "running"
    tell = steps_of(bob, run_id)["tell"]["job"]
    assert json_of(bob.get(f"projects/vision/jobs/{tell}"))["params"] == {"s": "failed"}
    for name in ("tell", "clean"):
        end_job(steps_of(bob, run_id)[name]["job"], machine)
    assert shown(bob, run_id)["state"] == "failed"
    bob.post(f"{RUNS}/{run_id}/resume")
    advance()
    for name in ("train", "use", "clean"):
        end_job(steps_of(bob, run_id)[name]["job"], machine)
    assert states_of(bob, run_id)["tell"] == "skipped"
    assert shown(bob, run_id)["state"] == "succeeded"


def test_a_failed_job_is_submitted_again_as_often_as_its_step_says(
    bob: Api, machine: Machine
) -> None:
    run_id = start(bob, [step("train", retries=1)])
    first = steps_of(bob, run_id)["train"]["job"]
    end_job(first, machine, reason="exit")
    second = steps_of(bob, run_id)["train"]
    assert (second["state"], second["attempt"]) == ("running", 2)
    assert second["job"] != first
    end_job(second["job"], machine, reason="exit")
    assert states_of(bob, run_id) == {"train": "failed"}


@pytest.mark.postgres
def test_a_resumed_run_does_not_repeat_what_has_succeeded(
    bob: Api, machine: Machine, people: Personas
) -> None:
    run_id = start(bob, three_steps())
    end_job(steps_of(bob, run_id)["prepare"]["job"], machine, {"data": "d"}, files=("d",))
    first = steps_of(bob, run_id)["train"]["job"]
    end_job(first, machine, reason="exit")
    assert shown(bob, run_id)["state"] == "failed"
    assert bob.post(f"{RUNS}/{run_id}/cancel").status_code == 200
    assert shown(bob, run_id)["state"] == "failed"  # as it was
    mia = Api.of(people.mia)
    assert json_of(mia.post(f"{RUNS}/{run_id}/resume"))["owner"] == "mia@example.org"
    advance()
    assert Job.objects.count() == 3
    train = steps_of(bob, run_id)["train"]["job"]
    assert train != first
    job = json_of(bob.get(f"projects/vision/jobs/{train}"))
    assert job["workload"]["submitted_by"] == "mia@example.org"
    end_job(train, machine, {"accuracy": 1})
    end_job(steps_of(bob, run_id)["compare"]["job"], machine)
    assert shown(bob, run_id)["state"] == "succeeded"
    again = bob.post(f"{RUNS}/{run_id}/resume")
    assert (again.status_code, json_of(again)["code"]) == (409, "run_not_failed")


@pytest.mark.postgres
def test_a_cancelled_run_stops_its_jobs_and_can_be_resumed(bob: Api, machine: Machine) -> None:
    run_id = start(bob, three_steps())
    job = steps_of(bob, run_id)["prepare"]["job"]
    assert json_of(bob.post(f"{RUNS}/{run_id}/cancel"))["state"] == "cancelled"
    early = bob.post(f"{RUNS}/{run_id}/resume")
    assert json_of(early)["code"] == "run_stopping"
    advance()
    end_state = json_of(bob.get(f"projects/vision/jobs/{job}"))["workload"]["state"]
    assert end_state in ("stopping", "stopped")
    if end_state == "stopping":
        end_job(job, machine, reason="user")
    assert set(states_of(bob, run_id).values()) == {"cancelled"}
    assert shown(bob, run_id)["explanation"] == "Cancelled by Bob."
    assert bob.post(f"{RUNS}/{run_id}/resume").status_code == 200
    advance()
    assert states_of(bob, run_id)["prepare"] == "running"


def test_a_person_with_the_role_approves(bob: Api, machine: Machine, people: Personas) -> None:
    steps = [
        {"name": "ok", "kind": "approval", "message": "Rows ${parameters.rows}?"},
        step("use", after=["ok"]),
    ]
    run_id = start(bob, steps)
    row = steps_of(bob, run_id)["ok"]
    assert (row["state"], row["explanation"]) == ("approval", "Rows 10?")
    decision = f"{RUNS}/{run_id}/steps/ok/decision"
    refused = bob.post(decision, {"verdict": "approve"})
    assert (refused.status_code, json_of(refused)["code"]) == (403, "role_too_low")
    mia = Api.of(people.mia)
    robot = service_account_of(people)
    refused = robot.post(decision, {"verdict": "approve"})
    assert (refused.status_code, json_of(refused)["code"]) == (403, "role_too_low")
    assert mia.post(f"{RUNS}/{run_id}/steps/no/decision", {"verdict": "approve"}).status_code == 404
    declined = mia.post(decision, {"verdict": "decline", "note": "Too few."})
    assert declined.status_code == 200, declined.content
    advance()
    row = steps_of(bob, run_id)["ok"]
    assert (row["state"], row["explanation"]) == ("failed", "Declined by Mia. Too few.")
    assert row["decided_by"] == "mia@example.org"
    assert states_of(bob, run_id)["use"] == "skipped"
    late = mia.post(decision, {"verdict": "approve"})
    assert (late.status_code, json_of(late)["code"]) == (409, "not_waiting_for_approval")
    bob.post(f"{RUNS}/{run_id}/resume")
    advance()
    assert mia.post(decision, {"verdict": "approve"}).status_code == 200
    advance()
    assert states_of(bob, run_id) == {"ok": "succeeded", "use": "running"}


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"parameters": {"rows": "x"}}, "parameters.rows", "not a value of type integer"),
        ({"parameters": {"lines": 1}}, "parameters.lines", "has no parameter lines"),
        ({"snapshot": "0" * 64}, "snapshot", "no such snapshot"),
        ({"snapshot": None}, "snapshot", "has no snapshot"),
    ],
)
def test_a_run_that_cannot_start_is_refused(
    bob: Api, machine: Machine, changes: dict[str, Any], field: str, words: str
) -> None:
    answer = bob.post(RUNS, body_of(bob, three_steps()) | changes)
    assert answer.status_code == 422, answer.content
    problem = json_of(answer)
    assert problem["field"] == field
    assert words in problem["detail"]
    assert problem["next_step"]
    assert not PipelineRun.objects.exists()


@pytest.mark.parametrize(
    ("steps", "field"),
    [
        ([step("a", after=["b"]), step("b", after=["a"])], "steps."),
        ([step("a", inputs={"x": "${steps.b.outputs.y}"})], "steps.a.inputs"),
        ([step("a", tier="huge")], "steps.a.tier"),
        ([step("a", script="none.py")], "steps.a.script"),
        ([step("a", environment="vision")], "steps.a.environment"),
        ([step("a", inputs={"x": "1\n2"})], "steps.a.inputs.x"),
    ],
)
def test_a_step_that_cannot_run_is_refused_with_its_name(
    bob: Api, machine: Machine, steps: list[dict[str, Any]], field: str
) -> None:
    answer = bob.post(RUNS, body_of(bob, steps))
    assert answer.status_code == 422, answer.content
    assert json_of(answer)["field"].startswith(field), answer.content


def test_runs_are_for_the_project_and_its_roles(
    bob: Api, machine: Machine, people: Personas
) -> None:
    run_id = start(bob, three_steps())
    vera, charlie = Api.of(people.vera), Api.of(people.charlie)
    assert vera.get(f"{RUNS}/{run_id}").status_code == 200
    for verb in ("cancel", "resume"):
        assert vera.post(f"{RUNS}/{run_id}/{verb}").status_code == 403
        assert charlie.post(f"{RUNS}/{run_id}/{verb}").status_code == 404
    assert vera.post(RUNS, body_of(bob, three_steps())).status_code == 403
    assert charlie.get(f"{RUNS}/{run_id}").status_code == 404
    assert charlie.get(f"projects/other/pipelines/runs/{run_id}").status_code == 404


def test_a_job_reports_outputs_of_its_own_step_only(bob: Api, machine: Machine) -> None:
    run_id = start(bob, [step("a", outputs={"x": {"type": "number"}}), step("b")])
    a, b = (steps_of(bob, run_id)[name]["job"] for name in ("a", "b"))
    for job in (a, b):
        refused = bob.put(f"projects/vision/pipelines/jobs/{job}/outputs", {"outputs": {"x": 1}})
        assert (refused.status_code, json_of(refused)["code"]) == (403, "not_the_job")
    other = Workload.objects.get(pk=b)
    own = Api(token_of(other.pk, other.epoch))
    refused = own.put(f"projects/vision/pipelines/jobs/{a}/outputs", {"outputs": {"x": 1}})
    assert (refused.status_code, json_of(refused)["code"]) == (403, "not_the_job")
    assert own.post(f"{RUNS}/{run_id}/cancel").status_code == 403
    end_job(a, machine, {"x": 2})
    assert steps_of(bob, run_id)["a"]["outputs"] == {"x": 2}


@pytest.mark.parametrize(
    ("outputs", "code"),
    [
        ({"y": 1}, "unknown_output"),
        ({"x": "much"}, "other_type"),
        ({"f": "../secret"}, "other_type"),
        ({"f": "/etc/passwd"}, "other_type"),
        ({"x": True}, "other_type"),
    ],
)
def test_outputs_are_checked_when_they_are_reported(
    bob: Api, machine: Machine, outputs: dict[str, Any], code: str
) -> None:
    declared = {"x": {"type": "number"}, "f": {"type": "file"}}
    run_id = start(bob, [step("a", outputs=declared)])
    answer = report(steps_of(bob, run_id)["a"]["job"], outputs)
    assert (answer.status_code, json_of(answer)["code"]) == (422, code)


def test_a_person_without_access_pays_for_no_further_step(
    bob: Api, machine: Machine, people: Personas
) -> None:
    run_id = start(bob, [step("a"), step("b", after=["a"])])
    Membership.objects.filter(user=people.bob).update(role=Role.VIEWER)
    end_job(steps_of(bob, run_id)["a"]["job"], machine)
    mia = Api.of(people.mia)
    row = steps_of(mia, run_id)["b"]
    assert (row["state"], row["job"]) == ("failed", None)
    assert row["explanation"] == "Bob may no longer submit jobs in this project."
    mia.post(f"{RUNS}/{run_id}/resume")
    advance()
    assert states_of(mia, run_id) == {"a": "succeeded", "b": "running"}
