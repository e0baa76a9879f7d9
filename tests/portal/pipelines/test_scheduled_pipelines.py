"""Schedules that start runs of pipelines."""

import json
from typing import Any

import pytest

from portal.core import clock
from portal.pipelines.models import PipelineRun
from portal.training.models import Job
from portal.workloads.scheduling import run_passes
from portal.workloads.services.desired import desired_for
from slipway.schemas.accounts import Scope
from tests.personas import Api, Personas, json_of
from tests.portal.pipelines import pipeline_runs, schedules
from tests.portal.pipelines.pipeline_runs import RUNS, shown, start, states_of, step, three_steps
from tests.portal.pipelines.schedules import EVENING, NIGHTLY, SCHEDULES, at, nightly, runs_of
from tests.portal.web.conftest import Browse
from tests.portal.web.reading import html_of, text_of
from tests.portal.workloads.machines import Machine

pytestmark = pytest.mark.django_db(databases=["default", "tracking"])


def _ended(bob: Api, steps: list[dict[str, Any]] | None = None) -> str:
    """Start a run of the usual steps and cancel it. Returns its id."""
    run_id = start(bob, steps or three_steps(), parameters={"rows": 7})
    assert bob.post(f"{RUNS}/{run_id}/cancel").status_code == 200
    pipeline_runs.advance()
    return run_id


def _create(bob: Api, **fields: Any) -> Any:
    body = {"name": "nightly", "cron": "0 2 * * *"} | fields
    with clock.frozen(EVENING):
        return bob.post(SCHEDULES, body)


def _variables(machine: Machine) -> dict[str, dict[str, str]]:
    """Return the environment variables of the tasks of a node, by the ids of their jobs."""
    tasks = desired_for(node=machine.node).tasks
    specs = [task.spec for task in tasks if task.spec is not None]
    return {spec.env["SLIPWAY_WORKLOAD"]: spec.env for spec in specs}


@pytest.mark.postgres
def test_a_schedule_starts_the_pipeline_of_a_run_again(bob: Api, machine: Machine) -> None:
    template = _ended(bob)
    made = _create(bob, pipeline_run=template, parameters={"rows": 8})
    assert made.status_code == 201, made.content
    schedule = json_of(made)
    assert (schedule["pipeline"], schedule["pipeline_run"]) == ("digits", template)
    assert (schedule["job"], schedule["script"], schedule["parameters"]) == (None, "", {"rows": 8})
    schedules.advance(at(10, 2))
    (run,) = runs_of(bob)
    assert (run["state"], run["outcome"]) == ("started", "running")
    # Its first step starts at once, within the transaction's second.
    assert states_of(bob, run["pipeline_run"]) == {
        "prepare": "running",
        "train": "waiting",
        "compare": "waiting",
    }
    started = shown(bob, run["pipeline_run"])
    assert started["parameters"] == {"rows": 8}
    assert started["owner"] == "bob@example.org"
    assert started["snapshot"] == shown(bob, template)["snapshot"]
    schedules.advance(at(11, 2))  # the run of yesterday goes on
    assert [item["state"] for item in runs_of(bob)] == ["started", "skipped"]
    changed = bob.patch(NIGHTLY, {"parameters": {"rows": 9}})
    assert json_of(changed)["parameters"] == {"rows": 9}, changed.content


def test_a_pipeline_that_has_not_run_is_scheduled(bob: Api, machine: Machine) -> None:
    body = pipeline_runs.body_of(bob, [step("train")], parameters={"rows": 3})
    made = _create(bob, pipeline=body, overlap="cancel")
    assert made.status_code == 201, made.content
    assert json_of(made)["pipeline_run"] is None
    schedules.advance(at(10, 2))
    first = runs_of(bob)[0]["pipeline_run"]
    schedules.advance(at(11, 2))
    assert shown(bob, first)["state"] == "cancelled"
    assert "the schedule nightly" in shown(bob, first)["explanation"]
    assert len(runs_of(bob)) == 2
    pipeline_runs.advance()  # its jobs stop
    schedules.advance(at(11, 2, 1))
    second = runs_of(bob)[1]
    assert (second["state"], second["outcome"]) == ("started", "running")
    assert PipelineRun.objects.count() == 2


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"pipeline_run": "ppr_none"}, "pipeline_run", "There is no run of a pipeline ppr_none"),
        ({"parameters": {"row": 1}}, "parameters.row", "Did you mean rows?"),
        ({"parameters": {"rows": "many"}}, "parameters.rows", "not a value of type integer"),
        ({"job": "wl_none"}, "", "name one of job, sweep, pipeline and pipeline_run"),
    ],
)
def test_a_schedule_of_a_pipeline_that_cannot_run_is_refused(
    bob: Api, machine: Machine, fields: dict[str, Any], field: str, words: str
) -> None:
    answer = _create(bob, **{"pipeline_run": _ended(bob)} | fields)
    assert answer.status_code == 422, answer.content
    problem = json_of(answer)
    assert problem.get("field") == (field or None) or not field
    assert words in str(problem)


def test_a_pipeline_with_a_step_that_cannot_run_is_refused(bob: Api, machine: Machine) -> None:
    body = pipeline_runs.body_of(bob, [step("train", tier="enormous")])
    answer = _create(bob, pipeline=body)
    assert (answer.status_code, json_of(answer)["field"]) == (422, "steps.train.tier")
    of_job = _create(bob, job="wl_none", parameters={"rows": 1})
    assert json_of(of_job)["field"] == "parameters"


@pytest.mark.parametrize("missing", [Scope.MODELS_PROMOTE, Scope.EXPERIMENTS_WRITE])
def test_a_token_that_may_not_promote_or_register_schedules_no_pipeline_that_does(
    people: Personas, bob: Api, machine: Machine, missing: Scope
) -> None:
    register = {
        "name": "register",
        "kind": "register",
        "model": "digits",
        "source": "${steps.train.outputs.model}",
    }
    promote = {
        "name": "promote",
        "kind": "promote",
        "model": "digits",
        "version": "${steps.register.outputs.version}",
        "alias": "best",
    }
    train = step("train", outputs={"model": {"type": "file"}})
    template = _ended(bob, [train, register, promote])
    scopes = [scope for scope in Scope if scope not in (Scope.ADMIN, missing)]
    limited = Api.of(people.bob, scopes=scopes)
    refused = _create(limited, pipeline_run=template)
    assert (refused.status_code, json_of(refused)["code"]) == (403, "missing_scope")
    assert _create(bob, pipeline_run=template).status_code == 201
    assert limited.patch(NIGHTLY, {"cron": "0 3 * * *"}).status_code == 403
    assert limited.post(f"{NIGHTLY}/run").status_code == 403
    assert limited.post(f"{NIGHTLY}/pause").status_code == 200
    assert limited.post(f"{NIGHTLY}/resume").status_code == 403
    assert nightly(bob)["state"] == "paused"


@pytest.mark.postgres
def test_a_job_learns_the_time_that_its_run_is_for(bob: Api, machine: Machine) -> None:
    schedules.create_nightly(bob, zone="Europe/Berlin")
    schedules.advance(at(10, 1, 3))
    job = runs_of(bob)[0]["job"]
    run_passes()
    assert _variables(machine)[job]["SLIPWAY_SCHEDULED_FOR"] == "2026-12-10T01:00:00Z"
    clone = json_of(bob.post(f"projects/vision/jobs/{job}/clone", {}))["workload"]["id"]
    assert Job.objects.get(pk=clone).variables is None


def test_a_pipeline_learns_the_time_that_its_run_is_for(bob: Api, machine: Machine) -> None:
    pipeline = {
        "name": "daily",
        "parameters": {"day": {"type": "string"}, "label": {"default": "none"}},
        "steps": [step("train", inputs={"day": "${parameters.day}"})],
    }
    body = pipeline_runs.body_of(bob, []) | {"pipeline": pipeline}
    parameters = {"day": "${schedule.time}", "label": "of ${schedule.time}"}
    unknown = _create(bob, pipeline=body, parameters={"day": "${schedule.day}"})
    assert (unknown.status_code, json_of(unknown)["field"]) == (422, "parameters.day")
    assert "${schedule.time}" in json_of(unknown)["next_step"]
    made = _create(bob, pipeline=body, parameters=parameters)
    assert made.status_code == 201, made.content
    schedules.advance(at(10, 2, 1))
    started = shown(bob, runs_of(bob)[0]["pipeline_run"])
    day = "2026-12-10T02:00:00Z"
    assert started["parameters"] == {"day": day, "label": f"of {day}"}
    run_passes()
    job = started["steps"][0]["job"]
    assert _variables(machine)[job]["SLIPWAY_SCHEDULED_FOR"] == day
    assert json.loads(_variables(machine)[job]["SLIPWAY_PARAMS"]) == {"day": day}


def test_pages_schedule_a_run_and_show_what_was_started(
    bob: Api, people: Personas, browse: Browse, machine: Machine
) -> None:
    client, template = browse(people.bob), _ended(bob)
    page = html_of(client.get(f"/p/vision/pipelines/{template}"))
    assert f"/p/vision/schedules/new?pipeline_run={template}" in page
    form = html_of(client.get(f"/p/vision/schedules/new?pipeline_run={template}"))
    assert f'value="{template}"' in form
    fields = {
        "name": "nightly",
        "template": template,
        "parameters": "rows",
        "cron": "0 2 * * *",
        "zone": "UTC",
        "missed": "once",
        "overlap": "skip",
    }
    with clock.frozen(EVENING):
        faulty = client.post("/p/vision/schedules/new", fields)
        assert "Write rows as NAME=VALUE." in text_of(faulty)
        unknown = client.post("/p/vision/schedules/new", fields | {"parameters": "row=1"})
        assert "The pipeline has no parameter row." in text_of(unknown)
        made = client.post("/p/vision/schedules/new", fields | {"parameters": "rows=5"})
    assert made.status_code == 302
    schedules.advance(at(10, 2))
    run_id = runs_of(bob)[0]["pipeline_run"]
    assert shown(bob, run_id)["parameters"] == {"rows": 5}
    shown_schedule = client.get("/p/vision/schedules/nightly")
    assert f"/p/vision/pipelines/{run_id}" in html_of(shown_schedule)
    assert "pipeline digits" in text_of(shown_schedule)
    assert "started by the schedule nightly" in text_of(client.get(f"/p/vision/pipelines/{run_id}"))
    edited = client.post("/p/vision/schedules/nightly/edit", fields | {"parameters": "rows=6"})
    assert edited.status_code == 302
    assert nightly(bob)["parameters"] == {"rows": 6}
