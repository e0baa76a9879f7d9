"""Schedules that events start: versions of datasets and models, promotions, alerts, webhooks."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from pytest_django import Settings

from portal.accounts.models import Project
from portal.core import clock
from portal.datasets.models import Dataset
from portal.datasets.services.drafts import (
    accept_pieces,
    commit_draft,
    declare_files,
    open_draft,
)
from portal.datasets.version_checks import check_waiting
from portal.endpoints.models import Endpoint
from portal.monitoring.models import Alert, Label
from portal.pipelines.models import ProjectSchedule, ScheduledRun, TriggerEvent
from portal.pipelines.services.progress import advance_all
from portal.training.models import Job
from slipway.schemas.datasets import DataFileIn
from slipway.schemas.endpoints import LimitsIn, RollbackRules
from slipway.schemas.triggers import MAX_BODY_BYTES, MOST_EVENTS_AN_HOUR
from tests.matrix.data import make_versions
from tests.personas import Api, Personas, json_of
from tests.portal.pipelines import pipeline_runs
from tests.portal.pipelines.pipeline_runs import RUNS, end_job, shown, step, steps_of
from tests.portal.pipelines.schedules import NIGHTLY, SCHEDULES, nightly, runs_of
from tests.portal.registry.store import FILES
from tests.portal.training.jobs import made_job
from tests.portal.web.conftest import Browse
from tests.portal.web.reading import html_of, text_of
from tests.portal.workloads.machines import Machine, make_tier

pytestmark = pytest.mark.django_db(databases=["default", "tracking"])
HOOK = f"{NIGHTLY}/hook"


@pytest.fixture(autouse=True)
def _artifacts(settings: Settings, tmp_path: Path) -> None:
    settings.SLIPWAY_ARTIFACTS_URL = f"file://{tmp_path / 'artifacts'}"


def _create(bob: Api, **fields: Any) -> Any:
    return bob.post(SCHEDULES, {"name": "nightly"} | fields)


def _job(bob: Api) -> str:
    """Submit a job and cancel it. Returns its id."""
    job: str = made_job(bob)["workload"]["id"]
    bob.post(f"projects/vision/jobs/{job}/cancel")
    return job


def _train_and_register() -> list[dict[str, Any]]:
    return [
        step("train", outputs={"model": {"type": "file"}}),
        {
            "name": "register",
            "kind": "register",
            "model": "${parameters.model}",
            "source": "${steps.train.outputs.model}",
        },
    ]


def _register(bob: Api, machine: Machine, model: str = "digits", **changes: Any) -> str:
    """Register a version of a model by a run of a pipeline. Returns its id."""
    body = pipeline_runs.body_of(bob, _train_and_register(), **changes)
    body["pipeline"]["parameters"] = {"model": {"type": "string"}}
    body["parameters"] = {"model": model}
    run_id: str = json_of(bob.post(RUNS, body))["id"]
    pipeline_runs.advance()
    _end_training(bob, machine, run_id)
    assert shown(bob, run_id)["state"] == "succeeded"
    return run_id


def _end_training(bob: Api, machine: Machine, run_id: str) -> None:
    files = tuple(f"model/{name}" for name in FILES)
    end_job(steps_of(bob, run_id)["train"]["job"], machine, {"model": "model"}, files=files)


def _new_version(people: Personas) -> None:
    """Publish the next version of the dataset digits."""
    dataset = Dataset.objects.get(name="digits")
    draft = open_draft(dataset=dataset, by=people.bob)
    digest = hashlib.sha256(b"third")
    file = DataFileIn(path="a.bin", size_bytes=5, pieces=[digest.hexdigest()])
    declare_files(draft=draft, files=[file])
    frame = digest.digest() + (5).to_bytes(8) + b"third"
    accept_pieces(project=dataset.project, by=people.bob, chunks=[frame])
    commit_draft(draft=draft)
    check_waiting()


@pytest.mark.postgres
def test_a_new_version_of_a_dataset_starts_a_job_once(
    bob: Api, people: Personas, machine: Machine
) -> None:
    vision = Project.objects.get(slug="vision")
    unknown = _create(bob, trigger={"event": "dataset_version", "dataset": "digits"}, job=_job(bob))
    assert (unknown.status_code, json_of(unknown)["field"]) == (422, "trigger.dataset")
    make_versions(project=vision, by=people.bob, name="digits")
    trigger = {"event": "dataset_version", "dataset": "digits"}
    made = _create(bob, trigger=trigger, job=_job(bob), overlap="queue")
    assert made.status_code == 201, made.content
    schedule = json_of(made)
    assert (schedule["cron"], schedule["next_at"], schedule["next_times"]) == ("", None, [])
    assert schedule["trigger"]["dataset"] == "digits"
    advance_all()
    assert runs_of(bob) == []  # versions of before do not count
    _new_version(people)
    advance_all()
    advance_all()
    (run,) = runs_of(bob)
    assert (run["state"], run["event"]["reference"]) == ("started", "digits:3")
    variables = Job.objects.get(pk=run["job"]).variables or {}
    event = json.loads(variables["SLIPWAY_EVENT"])
    assert (event["dataset"], event["version"]) == ("digits", 3)
    # A worker that was killed after it had stored the event, and before the run was added.
    TriggerEvent.objects.update(taken_at=None)
    ScheduledRun.objects.all().delete()
    advance_all()
    assert [row["state"] for row in runs_of(bob)] == ["started"]
    assert TriggerEvent.objects.count() == 1


def test_a_new_version_of_a_model_is_a_parameter_of_the_pipeline(
    bob: Api, machine: Machine
) -> None:
    _register(bob, machine)
    pipeline = {
        "name": "evaluate",
        "parameters": {"version": {"type": "integer"}, "uri": {"default": "none"}},
        "steps": [step("evaluate", inputs={"uri": "${parameters.uri}"})],
    }
    body = pipeline_runs.body_of(bob, []) | {"pipeline": pipeline}
    trigger = {"event": "model_version", "model": "digits"}
    parameters = {"version": "${event.version}", "uri": "at ${event.uri}"}
    wrong = _create(bob, trigger=trigger, pipeline=body, parameters={"version": "${event.uri}"})
    assert (wrong.status_code, json_of(wrong)["field"]) == (422, "parameters.version")
    unknown = _create(bob, trigger=trigger, pipeline=body, parameters={"version": "${event.row}"})
    assert "${event.version}" in json_of(unknown)["next_step"]
    by_time = _create(bob, cron="0 2 * * *", pipeline=body, parameters=parameters)
    assert json_of(by_time)["field"] == "parameters.version"
    made = _create(bob, trigger=trigger, pipeline=body, parameters=parameters)
    assert made.status_code == 201, made.content
    _register(bob, machine, force=True)
    advance_all()
    (run,) = runs_of(bob)
    started = shown(bob, run["pipeline_run"])
    assert started["parameters"] == {"version": 2, "uri": "at models:/digits/2"}
    to_cron = bob.patch(NIGHTLY, {"cron": "0 2 * * *"})
    assert to_cron.status_code == 422
    # PostgreSQL does not keep the order of stored parameters.
    assert json_of(to_cron)["field"] in ("parameters.version", "parameters.uri")


def test_a_pipeline_that_would_start_itself_is_refused_or_stopped(
    bob: Api, machine: Machine
) -> None:
    template = _register(bob, machine)
    trigger = {"event": "model_version", "model": "digits"}
    loop = _create(bob, trigger=trigger, pipeline_run=template)
    assert (loop.status_code, json_of(loop)["code"]) == (422, "trigger_loop")
    assert "Step register registers versions of model digits" in json_of(loop)["detail"]
    # It cannot be seen that this pipeline registers a version of the same model.
    steps = [
        step("train", outputs={"model": {"type": "file"}, "name": {"type": "string"}}),
        {
            "name": "register",
            "kind": "register",
            "model": "${steps.train.outputs.name}",
            "source": "${steps.train.outputs.model}",
        },
    ]
    body = pipeline_runs.body_of(bob, steps, force=True)
    assert _create(bob, trigger=trigger, pipeline=body, overlap="queue").status_code == 201
    _register(bob, machine, force=True)
    advance_all()
    run_id = runs_of(bob)[0]["pipeline_run"]
    job = steps_of(bob, run_id)["train"]["job"]
    files = tuple(f"model/{name}" for name in FILES)
    end_job(job, machine, {"model": "model", "name": "digits"}, files=files)
    assert shown(bob, run_id)["state"] == "succeeded"
    advance_all()
    first, second = runs_of(bob)
    assert (first["state"], second["state"]) == ("started", "skipped")
    assert "has caused the event" in second["reason"]


@pytest.mark.postgres
def test_a_promotion_starts_a_schedule(bob: Api, people: Personas, machine: Machine) -> None:
    _register(bob, machine)
    trigger = {"event": "model_stage", "model": "digits", "alias": "champion"}
    made = _create(bob, trigger=trigger, job=_job(bob))
    assert made.status_code == 201, made.content
    versions = "projects/vision/models/digits/versions/1"
    assert bob.post(f"{versions}/promote", {"alias": "other"}).status_code == 201
    advance_all()
    assert runs_of(bob) == []
    assert bob.post(f"{versions}/promote", {"alias": "champion"}).status_code == 201
    advance_all()
    (run,) = runs_of(bob)
    assert (run["state"], run["event"]["alias"]) == ("started", "champion")


def test_a_drift_alert_starts_a_schedule(bob: Api, people: Personas, machine: Machine) -> None:
    trigger = {"event": "drift_alert", "endpoint": "digits"}
    assert json_of(_create(bob, trigger=trigger, job=_job(bob)))["field"] == "trigger.endpoint"
    endpoint = _endpoint(people)
    assert _create(bob, trigger=trigger, job=_job(bob)).status_code == 201
    Alert.objects.create(endpoint=endpoint, kind="errors", reason="Many failed.")
    advance_all()
    assert runs_of(bob) == []
    Alert.objects.create(endpoint=endpoint, kind="drift", reason="1 input differs.")
    advance_all()
    assert [run["event"]["reason"] for run in runs_of(bob)] == ["1 input differs."]


def test_a_number_of_new_labels_starts_a_schedule(
    bob: Api, people: Personas, machine: Machine
) -> None:
    endpoint = _endpoint(people)
    _label(endpoint, people, "old")
    trigger = {"event": "labels", "endpoint": "digits", "count": 2}
    assert _create(bob, trigger=trigger, job=_job(bob), overlap="queue").status_code == 201
    for number in range(3):
        _label(endpoint, people, str(number))
        advance_all()
    assert [run["event"]["labels"] for run in runs_of(bob)] == [2]
    for number in range(3, 6):
        _label(endpoint, people, str(number))
    advance_all()
    advance_all()
    assert [run["state"] for run in runs_of(bob)] == ["started", "waiting", "waiting"]


def _label(endpoint: Endpoint, people: Personas, reference: str) -> None:
    Label.objects.create(endpoint=endpoint, reference=reference, value=1, by=people.bob)


def _endpoint(people: Personas) -> Endpoint:
    return Endpoint.objects.create(
        project=Project.objects.get(slug="vision"),
        name="digits",
        made_by=people.bob,
        tier=make_tier("served"),
        state="serving",
        limits=LimitsIn().model_dump(),
        rules=RollbackRules().model_dump(),
    )


def _call(url: str, body: Any = None, **headers: str) -> Any:
    path = url.partition("/api/v1")[1] + url.partition("/api/v1")[2]
    content = body if isinstance(body, bytes) else json.dumps(body or {}).encode()
    client = Client(enforce_csrf_checks=True, headers=headers)
    return client.post(path, content, content_type="application/json")


@pytest.mark.postgres
def test_a_webhook_starts_a_schedule_with_its_body(bob: Api, machine: Machine) -> None:
    pipeline = {
        "name": "evaluate",
        "parameters": {"ref": {"type": "string", "default": "main"}, "rows": {"default": 1}},
        "steps": [step("evaluate", inputs={"ref": "${parameters.ref}"})],
    }
    body = pipeline_runs.body_of(bob, []) | {"pipeline": pipeline}
    parameters = {"ref": "${event.body.push.ref}", "rows": "${event.body.rows}"}
    assert bob.post(HOOK).status_code == 404
    fields = {"pipeline": body, "parameters": parameters, "overlap": "queue"}
    made = _create(bob, trigger={"event": "webhook"}, **fields)
    assert made.status_code == 201, made.content
    assert json_of(made)["hook_created_at"] is None
    url = json_of(bob.post(HOOK))["url"]
    assert url.rpartition("/")[2] not in str(ProjectSchedule.objects.values())
    answer = _call(url, {"push": {"ref": "v2"}}, idempotency_key="one")
    assert answer.status_code == 202, answer.content
    again = _call(url, {"push": {"ref": "v2"}}, idempotency_key="one")
    assert json_of(again) == json_of(answer)
    advance_all()
    (run,) = runs_of(bob)
    assert shown(bob, run["pipeline_run"])["parameters"] == {"ref": "v2", "rows": 1}
    new_url = json_of(bob.post(HOOK))["url"]
    refused = _call(url, {})
    unknown = _call(url[:-4] + "abcd", {})
    malformed = _call(url[:-20], {})
    shapes = [(it.status_code, json_of(it)["detail"]) for it in (refused, unknown, malformed)]
    assert shapes == [shapes[0]] * 3
    assert shapes[0][0] == 404
    assert _call(new_url, b"").status_code == 202
    assert _call(new_url, [1]).status_code == 422
    for text in (b"\\ud800", b"\\u0000"):
        assert _call(new_url, b'{"a": "%b"}' % text).status_code == 422
    assert _call(new_url, b" " * (MAX_BODY_BYTES + 1)).status_code == 413
    assert bob.post(f"{NIGHTLY}/pause").status_code == 200
    assert (_call(new_url, {}).status_code, json_of(_call(new_url, {}))["code"]) == (
        409,
        "schedule_paused",
    )
    assert bob.delete(NIGHTLY).status_code == 204
    assert _call(new_url, {}).status_code == 404


@pytest.mark.postgres
def test_events_are_limited_and_obey_the_rule_for_overlaps(bob: Api, machine: Machine) -> None:
    _create(bob, trigger={"event": "webhook"}, job=_job(bob))
    url = json_of(bob.post(HOOK))["url"]
    for _ in range(2):
        assert _call(url).status_code == 202
    advance_all()
    assert [run["state"] for run in runs_of(bob)] == ["started", "skipped"]
    schedule = ProjectSchedule.objects.get()
    for number in range(MOST_EVENTS_AN_HOUR):
        event = TriggerEvent.objects.create(
            schedule=schedule,
            key=str(number),
            occurred_at=clock.now(),
            taken_at=clock.now(),
            details={"body": {}},
        )
        ScheduledRun.objects.create(
            schedule=schedule, event=event, due_at=clock.now(), state="refused", reason="No."
        )
    assert _call(url).status_code == 202
    advance_all()
    reason = ScheduledRun.objects.exclude(event=None).latest("created_at").reason
    assert "events have started runs within an hour" in reason


@pytest.mark.parametrize(
    ("trigger", "words"),
    [
        ({"event": "full_moon"}, ""),
        ({"event": "model_version"}, "needs model"),
        ({"event": "labels", "endpoint": "digits"}, "needs count"),
        ({"event": "webhook", "model": "digits"}, "has no model"),
        ({"event": "model_stage", "model": "m", "stage": "a", "alias": "b"}, "not both"),
        ({"event": "model_version", "model": "unknown"}, "There is no model unknown"),
    ],
)
def test_a_trigger_that_makes_no_sense_is_refused(
    bob: Api, machine: Machine, trigger: dict[str, Any], words: str
) -> None:
    answer = _create(bob, trigger=trigger, job=_job(bob))
    assert answer.status_code == 422
    assert words in str(json_of(answer))
    both = _create(bob, trigger={"event": "webhook"}, cron="0 2 * * *", job=_job(bob))
    assert both.status_code == 422


def test_pages_of_a_schedule_with_a_webhook(
    bob: Api, people: Personas, browse: Browse, machine: Machine
) -> None:
    client, fields = browse(people.bob), {"missed": "once", "overlap": "skip", "name": "nightly"}
    fields |= {"template": _job(bob), "event": "model_version", "subject": "nothing"}
    refused = client.post("/p/vision/schedules/new", fields)
    assert "There is no model nothing" in text_of(refused)
    preview = client.post("/p/vision/schedules/preview", fields)
    assert "For each new version of model nothing." in text_of(preview)
    made = client.post("/p/vision/schedules/new", fields | {"event": "webhook"})
    assert made.status_code == 302, text_of(made)
    assert "for each webhook" in text_of(client.get("/p/vision/schedules"))
    page = client.post("/p/vision/schedules/nightly/hook")
    assert "It is shown only now." in text_of(page)
    url = html_of(page).partition("/api/v1/hooks/")[2].partition("<")[0]
    assert _call(f"/api/v1/hooks/{url}", {}).status_code == 202
    advance_all()
    assert "slh_" not in html_of(client.get("/p/vision/schedules/nightly"))
    assert nightly(bob)["last_run"]["event"]["body"] == {}
