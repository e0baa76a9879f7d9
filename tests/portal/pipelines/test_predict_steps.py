"""Steps that are batch predictions: requests, outputs, reuse, retries and their price."""

from typing import Any

import pytest
from pytest_django import Settings

from portal.batch_predictions.models import BatchPrediction
from portal.compute.models import Environment
from portal.datasets.version_checks import check_waiting
from tests.personas import Api, Personas, json_of
from tests.portal.batch_predictions.predicting import AT, Place, model_files, own, result
from tests.portal.pipelines.pipeline_runs import (
    PLAN,
    RUNS,
    advance,
    body_of,
    shown,
    step,
    steps_of,
)
from tests.portal.registry.store import Store
from tests.portal.workloads.machines import Machine, finish, run

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _artifacts(settings: Settings, tmp_path: Any) -> None:
    settings.SLIPWAY_ARTIFACTS_URL = f"file://{tmp_path / 'artifacts'}"


@pytest.fixture
def place(bob: Api, people: Personas, machine: Machine, tmp_path: Any) -> Place:
    return Place(bob, Store(tmp_path / "artifacts", people.vision.pk), machine)


def _predict(**fields: Any) -> dict[str, Any]:
    base = {"name": "score", "kind": "predict", "model": "prices", "data": "sales"}
    return base | {"output": "scored", "tier": "small", "keep_columns": ["id"]} | fields


def _start(api: Api, *steps: dict[str, Any], **changes: Any) -> str:
    answer = api.post(RUNS, body_of(api, list(steps), **changes))
    assert answer.status_code == 201, answer.content
    advance()
    run_id: str = json_of(answer)["id"]
    return run_id


def _planned(api: Api, *steps: dict[str, Any]) -> list[dict[str, Any]]:
    answer = api.post(PLAN, body_of(api, list(steps)))
    assert answer.status_code == 200, answer.content
    planned: list[dict[str, Any]] = json_of(answer)["steps"]
    return planned


def _end(place: Place, job: str, content: bytes = b"id,prediction\nr1,3\n") -> None:
    """Let the job of a step report a version and succeed."""
    draft = place.draft(content, "scored")
    assert own(job).put(f"{AT}/{job}/output", result(draft)).status_code == 200
    check_waiting()
    place.end(job)
    advance()


@pytest.mark.postgres
def test_a_step_predicts_and_later_steps_use_its_output(place: Place) -> None:
    use = step("use", inputs={"data": "${steps.score.outputs.data}"})
    run_id = _start(place.api, _predict(), use)
    score = steps_of(place.api, run_id)["score"]
    assert score["state"] == "running", score
    prediction = BatchPrediction.objects.get(pk=score["job"])
    assert (prediction.number, prediction.keep) == (1, ["id"])
    _end(place, score["job"])
    steps = steps_of(place.api, run_id)
    expected = {"data": "scored:1", "rows": 2, "failed_rows": 0}
    assert steps["score"]["outputs"] == expected
    assert steps["use"]["state"] == "running"
    job = json_of(place.api.get(f"projects/vision/jobs/{steps['use']['job']}"))
    assert job["params"] == {"data": "scored:1"}


def test_equal_predictions_of_an_earlier_run_are_reused(place: Place) -> None:
    run_id = _start(place.api, _predict())
    _end(place, steps_of(place.api, run_id)["score"]["job"])
    assert _planned(place.api, _predict())[0]["action"] == "reuse"
    again = _start(place.api, _predict())
    assert steps_of(place.api, again)["score"]["state"] == "reused"
    assert steps_of(place.api, again)["score"]["outputs"]["data"] == "scored:1"
    assert _planned(place.api, _predict(on_error="skip"))[0]["action"] == "run"
    place.push(b"id,price,count\nr1,1,1\n")
    assert _planned(place.api, _predict())[0]["action"] == "run", "the data have changed"
    assert place.api.delete("projects/vision/datasets/scored/versions/1").status_code == 204
    assert _planned(place.api, _predict(data="sales:1"))[0]["action"] == "run"


def test_a_model_that_an_earlier_step_registers_is_predicted_with(place: Place) -> None:
    source = f"runs:/{place.store.run(files=model_files())}/model"
    register = {"name": "register", "kind": "register", "model": "fresh", "source": source}
    steps = (register, _predict(model="${steps.register.outputs.uri}"))
    planned = {each["step"]: each for each in _planned(place.api, *steps)}
    assert planned["score"]["action"] == "depends"
    assert planned["score"]["quote"]["nano_usd_per_hour"] == 3_600_000_000
    run_id = _start(place.api, *steps)
    score = steps_of(place.api, run_id)["score"]
    assert score["state"] == "running", score
    prediction = BatchPrediction.objects.get(pk=score["job"])
    assert (prediction.model, prediction.number) == ("fresh", 1)


def test_a_named_environment_replaces_the_packages_of_the_model(place: Place) -> None:
    at = "projects/vision/named-environments"
    body = {"name": "trees", "requirements": "humanize==4.1.0"}
    assert place.api.post(at, body).status_code == 201
    run_id = _start(place.api, _predict(environment="trees"))
    job = steps_of(place.api, run_id)["score"]["job"]
    workload = BatchPrediction.objects.get(pk=job).job.workload
    lines = Environment.objects.get(digest=workload.environment).requirements.splitlines()
    assert {"humanize==4.1.0", "mlflow"} <= {*lines}
    _end(place, job)
    assert _planned(place.api, _predict(environment="trees"))[0]["action"] == "reuse"
    assert _planned(place.api, _predict())[0]["action"] == "run", "in the packages of the model"
    newer = {"requirements": "humanize==4.2.0"}
    assert place.api.post(f"{at}/trees/versions", newer).status_code == 201
    assert _planned(place.api, _predict(environment="trees"))[0]["action"] == "run"
    assert _planned(place.api, _predict(environment="trees@1"))[0]["action"] == "reuse"


def test_a_failed_job_is_retried_and_then_fails_the_step(place: Place) -> None:
    run_id = _start(place.api, _predict(retries=1))
    for attempt in (1, 2):
        score = steps_of(place.api, run_id)["score"]
        assert (score["state"], score["attempt"]) == ("running", attempt)
        prediction = BatchPrediction.objects.get(pk=score["job"])
        run(prediction.job.workload)
        finish(prediction.job.workload, "exit", exit_code=1)
        advance()
    document = shown(place.api, run_id)
    assert document["state"] == "failed"
    assert document["explanation"].startswith("Step score failed")


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        ({"model": "unknown"}, "steps.score.model", "no registered model unknown"),
        ({"data": "unknown"}, "steps.score.data", "no dataset unknown"),
        ({"environment": "nowhere"}, "steps.score.environment", "no environment named nowhere"),
        ({"columns": ["price"]}, "steps.score.data", "lack the column count"),
        ({"script": "train.py"}, "steps.score.script", "has no script"),
        ({"output": None}, "steps.score.output", "has no output"),
        ({"outputs": {"x": {}}}, "steps.score.outputs", "has no outputs"),
    ],
)
def test_a_step_that_can_never_run_is_refused(
    place: Place, fields: dict[str, Any], field: str, message: str
) -> None:
    answer = place.api.post(RUNS, body_of(place.api, [_predict(**fields)]))
    assert answer.status_code == 422, answer.content
    assert json_of(answer)["field"] == field
    assert message in json_of(answer)["detail"]


def test_a_step_that_is_no_prediction_has_no_data(place: Place) -> None:
    answer = place.api.post(RUNS, body_of(place.api, [step("train", data="sales")]))
    assert answer.status_code == 422
    assert json_of(answer)["field"] == "steps.train.data"
