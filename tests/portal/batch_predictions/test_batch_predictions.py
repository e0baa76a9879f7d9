"""Batch predictions: refused before they are queued, run as jobs, and recorded once."""

from typing import Any

import pytest

from portal.compute.models import Environment
from portal.datasets.version_checks import check_waiting
from portal.workloads.models import Workload
from tests.personas import Api, Personas, json_of
from tests.portal.batch_predictions.predicting import AT, Place, own, result

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]


def _problem(answer: Any, status: int = 422) -> dict[str, Any]:
    assert answer.status_code == status, answer.content
    problem: dict[str, Any] = json_of(answer)
    assert problem["next_step"]
    return problem


def test_a_batch_prediction_is_a_job_of_the_platform(place: Place) -> None:
    prediction = place.start()
    shown = place.shown(prediction)
    assert (shown["model"], shown["version"], shown["data"]) == ("prices", 1, "sales:1")
    assert (shown["columns"], shown["keep"]) == (["price", "count"], ["id", "price", "count"])
    assert (shown["state"], shown["output_version"]) == ("placed", None)
    job = json_of(place.api.get(f"projects/vision/jobs/{prediction}"))
    assert job["params"] == {"model": "prices@1", "data": "sales:1", "output": "predicted"}
    assert job["datasets"] == ["sales:1"]
    assert Workload.objects.get(pk=prediction).spec["argv"] == ["slipway-batch-predict"]
    cloned = place.api.post(f"projects/vision/jobs/{prediction}/clone", {})
    assert _problem(cloned, 409)["code"] == "platform_program"
    listed = json_of(place.api.get(f"{AT}?q=sales"))["items"]
    assert [item["id"] for item in listed] == [prediction]
    assert json_of(place.api.get(f"{AT}?q=nothing"))["items"] == []


def test_the_output_is_recorded_once(place: Place) -> None:
    prediction = place.start()
    job, where = own(prediction), f"{AT}/{prediction}/output"
    assert json_of(job.get(where)) == {"state": None, "reference": None, "reason": ""}
    first, second = place.draft(), place.draft(b"id,prediction\nr1,4\n")
    assert json_of(job.put(where, result(first)))["state"] == "checking"
    # A second attempt that has not learned of it reports again.
    assert json_of(job.put(where, result(second, rows=1)))["state"] == "checking"
    check_waiting()
    assert json_of(job.get(where))["reference"] == "predicted:1"
    assert json_of(job.put(where, result(second)))["reference"] == "predicted:1"
    place.end(prediction)
    shown = place.shown(prediction)
    assert (shown["output_version"], shown["rows"], shown["failed_rows"]) == ("predicted:1", 2, 0)
    assert (shown["rows_per_second"], shown["rows_per_call"]) == (4.0, 64)
    versions = json_of(place.api.get("projects/vision/datasets/predicted/versions"))["items"]
    assert len(versions) == 1


def test_equal_predictions_are_the_version_that_has_them(place: Place) -> None:
    for _ in range(2):
        prediction = place.start()
        draft = place.draft()
        assert own(prediction).put(f"{AT}/{prediction}/output", result(draft)).status_code == 200
        check_waiting()
        assert place.shown(prediction)["output_version"] == "predicted:1"
        assert json_of(own(prediction).get(f"{AT}/{prediction}/output"))["reference"]
        place.end(prediction)


def test_an_output_that_was_refused_may_be_reported_again(place: Place) -> None:
    prediction = place.start()
    job, where = own(prediction), f"{AT}/{prediction}/output"
    bad = place.draft(b'id,prediction\nr1,1\n"r2,2\n')
    job.put(where, result(bad))
    check_waiting()
    assert json_of(job.get(where))["state"] == "refused"
    assert json_of(job.get(where))["reason"]
    job.put(where, result(place.draft()))
    check_waiting()
    assert json_of(job.get(where))["reference"] == "predicted:1"


def test_only_the_job_itself_reads_the_model_and_reports(place: Place, people: Personas) -> None:
    prediction, other = place.start(), place.start(output="elsewhere")
    draft = place.draft()
    reads = [f"{AT}/{prediction}/spec", f"{AT}/{prediction}/files/0", f"{AT}/{prediction}/output"]
    for api, status in ((place.api, 403), (own(other), 403), (Api.of(people.charlie), 404)):
        for path in reads:
            assert api.get(path).status_code == status, path
        answer = api.put(f"{AT}/{prediction}/output", result(draft))
        assert answer.status_code == status
    spec = json_of(own(prediction).get(f"{AT}/{prediction}/spec"))
    assert (spec["model"], spec["version"], spec["columns"]) == ("prices", "1", ["price", "count"])
    assert len(spec["files"]) == 2
    content = own(prediction).get(f"{AT}/{prediction}/files/0")
    assert b"".join(content.streaming_content).startswith(b"flavors")  # type: ignore[attr-defined]
    assert own(prediction).get(f"{AT}/{prediction}/files/2").status_code == 404
    foreign = place.draft(name="sales")
    assert own(prediction).put(f"{AT}/{prediction}/output", result(foreign)).status_code == 409


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"id,price\nr1,1.5\n", "lack the column count"),
        (b"id,price,count\nr1,dear,2\n", "price is string, double is expected"),
        (b"id\nr1\n", "lack the columns price, count"),
    ],
)
def test_data_that_do_not_fit_the_signature_are_refused(
    place: Place, content: bytes, message: str
) -> None:
    place.push(content)
    problem = _problem(place.ask())
    assert (problem["code"], problem["field"]) == ("signature_mismatch", "data")
    assert message in problem["detail"]
    assert not Workload.objects.exists()
    assert place.api.get("projects/vision/datasets/predicted").status_code == 404


def test_a_tensor_takes_as_many_columns_as_it_has(place: Place) -> None:
    spec = {"dtype": "float64", "shape": [-1, 2]}
    number = str(place.register([{"type": "tensor", "tensor-spec": spec}]))
    problem = _problem(place.ask(version=number))
    assert "takes 2 columns, and 3 were chosen" in problem["detail"]
    prediction = place.start(version=number, columns=["price", "count"])
    assert place.shown(prediction)["columns"] == ["price", "count"]


@pytest.mark.parametrize(
    ("changes", "code", "field"),
    [
        ({"model": "unknown"}, "no_such_model", "model"),
        ({"version": "77"}, "no_such_version", "version"),
        ({"version": "production"}, "no_such_version", "version"),
        ({"data": "unknown"}, "no_such_dataset", "data"),
        ({"data": "sales:9"}, "no_such_dataset", "data"),
        ({"table": "other.csv"}, "which_table", "table"),
        ({"keep": ["id", "colour"]}, "no_such_column", "keep"),
        ({"columns": ["colour"]}, "no_such_column", "columns"),
        ({"columns": ["price"]}, "signature_mismatch", "data"),
        ({"tier": "huge"}, "no_such_tier", "tier"),
    ],
)
def test_what_does_not_exist_is_refused(
    place: Place, changes: dict[str, Any], code: str, field: str
) -> None:
    problem = _problem(place.ask(**changes))
    assert (problem["code"], problem["field"]) == (code, field), problem
    assert not Workload.objects.exists()


def test_data_without_rows_or_tables_are_refused(place: Place) -> None:
    place.push(b"id,price,count\n", "empty")
    assert _problem(place.ask(data="empty"))["code"] == "empty_table"
    place.push(b"text", "texts", "notes.txt")
    assert _problem(place.ask(data="texts"))["code"] == "which_table"


def test_deleted_data_and_those_of_another_project_do_not_exist(
    place: Place, people: Personas
) -> None:
    place.push(b"id,price,count\nr9,1,1\n")
    assert place.api.delete("projects/vision/datasets/sales/versions/2").status_code == 204
    assert _problem(place.ask(data="sales:2"))["code"] == "no_such_dataset"
    charlie = Api.of(people.charlie)
    assert charlie.get(AT).status_code == 404
    prediction = place.start()
    assert charlie.get(f"{AT}/{prediction}").status_code == 404
    vera = Api.of(people.vera)
    assert vera.get(f"{AT}/{prediction}").status_code == 200
    body = {"model": "prices", "data": "sales", "output": "predicted", "tier": "small"}
    assert vera.post(AT, body).status_code == 403


def test_a_name_that_predictions_need_is_not_kept(place: Place) -> None:
    place.push(b"id,price,count,prediction\nr9,1,1,2\n")
    problem = _problem(place.ask())
    assert (problem["code"], problem["field"]) == ("column_taken", "keep")
    assert place.ask(keep=["id"]).status_code == 201


def test_the_price_is_known_before(place: Place) -> None:
    body = {"model": "prices", "data": "sales", "output": "predicted", "tier": "small"}
    answer = place.api.post(f"{AT}/quote", body)
    assert answer.status_code == 200, answer.content
    quoted = json_of(answer)
    assert (quoted["version"], quoted["data"], quoted["rows"]) == (1, "sales:1", 2)
    assert quoted["quote"]["nano_usd_per_hour"] == 3_600_000_000
    assert not Workload.objects.exists()


def test_a_batch_prediction_is_in_the_lineage_of_its_version(place: Place) -> None:
    prediction = place.start()
    own(prediction).put(f"{AT}/{prediction}/output", result(place.draft()))
    check_waiting()
    graph = json_of(place.api.get("projects/vision/models/prices/versions/1/lineage"))
    node = f"batch_prediction:{prediction}"
    labels = {item["key"]: item["label"] for item in graph["nodes"]}
    assert labels[node] == "predicted:1"
    sources = {
        edge["source"].partition("@")[0] for edge in graph["edges"] if edge["target"] == node
    }
    assert sources == {"version:prices/1", "dataset:sales"}
    around = place.api.get(f"projects/vision/lineage?kind=batch_prediction&id={prediction}")
    assert json_of(around) == graph


def test_a_named_environment_is_used_in_place_of_the_packages_of_the_model(place: Place) -> None:
    for name, text in (
        ("trees", "humanize==4.1.0"),
        ("geo", "dependencies: [python=3.12, {pip: [humanize==4.1.0]}]\n"),
    ):
        body = {"name": name, "requirements": text}
        answer = place.api.post("projects/vision/named-environments", body)
        assert answer.status_code == 201, answer.content
        prediction = place.start(environment=f"{name}@1", output=name)
        workload = Workload.objects.get(pk=prediction)
        environment = Environment.objects.get(digest=workload.environment)
        assert bool(environment.conda) is (name == "geo")
        assert {"humanize==4.1.0", "mlflow"} <= {*environment.requirements.splitlines()}
    problem = _problem(place.ask(environment="nowhere"))
    assert (problem["code"], problem["field"]) == ("no_such_environment", "environment")
