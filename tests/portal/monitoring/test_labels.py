"""Ground truth: late, twice, otherwise; by the prediction's id or the client's own."""

from datetime import timedelta

import pytest

from portal.core import clock
from portal.datasets.models import Version
from portal.datasets.version_checks import check_waiting
from portal.monitoring.analyst import analyst
from portal.monitoring.exports_and_erasure import run_pending, run_selection
from portal.monitoring.lineage import data_behind, data_of
from portal.monitoring.models import Label, Selection
from portal.monitoring.paths import raw_root
from portal.monitoring.prediction_search import search
from portal.monitoring.retention import delete_expired
from slipway.schemas.monitoring import SelectionFilters
from tests.portal.monitoring.captured import KEY, Traffic

_HOUR = timedelta(hours=1)


def _labels(traffic: Traffic, ids: list[str], *, wrong: int = 0) -> list[dict[str, object]]:
    """Return what the model said as labels, of the first `wrong` the opposite."""
    classes = {
        prediction.prediction_id: str(prediction.outputs["class"]).removesuffix(".0")
        for prediction in search(
            traffic.endpoint, SelectionFilters(prediction_ids=ids), limit=5_000
        )[0]
    }
    return [
        {
            "prediction_id": name,
            "value": classes[name] if at >= wrong else ("1" if classes[name] == "0" else "0"),
        }
        for at, name in enumerate(ids)
    ]


@pytest.mark.thorough
def test_labels_late_twice_and_otherwise(traffic: Traffic) -> None:
    ids = traffic.normal(400)
    traffic.look()
    estimate = traffic.shown()["quality"]
    assert (estimate["labelled"], estimate["figures"]) == (0, {})
    assert estimate["estimate_low"] < estimate["estimate"] < estimate["estimate_high"]
    labels = _labels(traffic, ids, wrong=200)
    # By id and late; by the client's own id, before and after that is known.
    assert traffic.post("labels", {"labels": labels}) == {
        "added": 400,
        "same": 0,
        "changed": 0,
        "empty": 0,
    }
    assert traffic.post("labels", {"labels": labels[:5]})["same"] == 5
    traffic.look()
    shown = traffic.shown()
    assert shown["quality"]["figures"]["accuracy"] == 0.5
    assert {"f1", "auc", "brier", "calibration_error"} <= shown["quality"]["figures"].keys()
    assert shown["quality"]["coverage"] == 1.0
    assert [revision["name"] for revision in shown["quality_by_revision"]] == ["1"]
    (alert,) = [item for item in shown["alerts"] if item["kind"] == "quality"]
    assert "50.0 %" in alert["reason"]
    sliced = traffic.shown(feature="a", operator=">", value="0")["quality"]
    assert 0 < sliced["labelled"] < 400
    assert {"accuracy", "f1", "auc", "calibration_error"} <= sliced["figures"].keys()
    assert "auc" in shown["quality_by_revision"][0]["figures"]
    # Somebody corrects 200 of them: both versions are kept, the last one counts.
    corrected = _labels(traffic, ids)[:200]
    assert traffic.post("labels", {"labels": corrected}) == {
        "added": 0,
        "same": 0,
        "changed": 200,
        "empty": 0,
    }
    traffic.look()
    assert traffic.shown()["quality"]["figures"]["accuracy"] == 1.0
    listed = traffic.get("labels", limit=200)["items"]
    assert {(version["version"], version["is_current"]) for version in listed} == {(2, True)}
    assert Label.objects.filter(is_current=False).count() == 200


def test_labels_by_the_clients_own_id_and_refusals(traffic: Traffic) -> None:
    traffic.post("labels", {"labels": [{"own_id": "order-x", "value": 2.5}]})
    traffic.capture(
        [{"inputs": [[1.0, 2.0]], "client_request_id": "order-x"}], [{"predictions": [2.0]}]
    )
    traffic.look()
    (match,) = traffic.get("predictions", own_id="order-x")["items"]
    assert match["label"] == 2.5
    assert traffic.shown()["quality"]["figures"]["mae"] == 0.5
    both = {"own_id": "a", "prediction_id": match["prediction_id"], "value": 1}
    refused = traffic.api.post(f"{traffic.root}/labels", {"labels": [both]})
    assert refused.status_code == 422
    twice = [{"own_id": "a", "value": 1}, {"own_id": "a", "value": 2}]
    refused = traffic.api.post(f"{traffic.root}/labels", {"labels": twice})
    assert (refused.status_code, b"two_labels" in refused.content) == (422, True)
    none = traffic.api.post(f"{traffic.root}/labels", {"labels": [{"own_id": "a", "value": None}]})
    assert none.status_code == 422


@pytest.mark.thorough
def test_predictions_are_found_by_everything(traffic: Traffic) -> None:
    ids = traffic.normal(30)
    other = traffic.capture([{"inputs": {"a": [50.0]}}], [{"predictions": [1]}], key="key_other")
    traffic.look()
    (prediction,) = traffic.get("predictions", prediction_id=ids[3])["items"]
    assert (prediction["model_version"], prediction["revision"], prediction["caller"]) == (
        "1",
        1,
        KEY,
    )
    assert set(prediction["inputs"]) >= {"a", "b", "c", "d", "e"}
    assert [
        x["prediction_id"] for x in traffic.get("predictions", caller="key_other")["items"]
    ] == (other)
    assert traffic.get("predictions", feature="a", operator=">", value="49")["items"]
    assert traffic.get("predictions", model_version="2")["items"] == []
    later = (clock.now() + _HOUR).isoformat()
    assert traffic.get("predictions", since=later)["items"] == []
    first = traffic.get("predictions", limit=20)
    rest = traffic.get("predictions", limit=20, cursor=first["next_cursor"])
    seen = [x["prediction_id"] for x in (*first["items"], *rest["items"])]
    assert sorted(seen) == sorted([*ids, *other])
    assert rest["next_cursor"] is None
    refused = traffic.api.get(f"{traffic.root}/predictions?cursor=odd")
    assert refused.status_code == 422


@pytest.mark.thorough
def test_a_selection_becomes_a_dataset_version(traffic: Traffic) -> None:
    ids = traffic.normal(60)
    traffic.look()
    traffic.post("labels", {"labels": _labels(traffic, ids[:40])})
    body = {"dataset": "hard-digits", "filters": {"feature": "a", "operator": ">", "value": "-9"}}
    made = traffic.post("selections", body, status=202)
    assert made["done_at"] is None
    waiting = Selection.objects.select_related("endpoint", "dataset", "by").get()
    run_pending()
    (done,) = traffic.get("selections")["items"]
    assert (done["rows"], done["reason"], done["dataset"]) == (40, "", "hard-digits")
    version = Version.objects.get(dataset__name="hard-digits")
    assert version.state in ("checking", "ready")
    assert "60" not in version.note
    assert "40 predictions of the endpoint digits" in version.note
    assert list(version.entries.files().values_list("path", flat=True)) == ["predictions.parquet"]
    check_waiting()
    lineage = data_of(
        project_id=traffic.endpoint.project_id, model="digits", version=1, key="version:digits/1"
    )
    (node,) = lineage.nodes
    assert (node.label, node.kind) == ("hard-digits:1", "dataset")
    assert [(edge.source, edge.target) for edge in lineage.edges] == [
        ("predictions:digits/1", node.key)
    ]
    ready = Version.objects.get(pk=version.pk)
    assert data_behind(traffic.endpoint.project, node.id) == ready
    of_another = data_of(
        project_id=traffic.endpoint.project_id, model="digits", version=2, key="version:digits/2"
    )
    assert not of_another.nodes
    # Selections of other versions of the model neither take its place nor are counted.
    others = [
        Selection(
            endpoint=waiting.endpoint,
            dataset=waiting.dataset,
            version=ready,
            by=waiting.by,
            revisions=["rev_of_another_version"],
        )
        for _ in range(101)
    ]
    Selection.objects.bulk_create(others)
    crowded = data_of(
        project_id=traffic.endpoint.project_id, model="digits", version=1, key="version:digits/1"
    )
    assert ([neighbour.key for neighbour in crowded.nodes], crowded.left_out) == ([node.key], 0)
    Selection.objects.filter(pk__in=[other.pk for other in others]).delete()
    # A second worker that began before the first had ended makes no second version.
    with analyst() as connection:
        run_selection(connection, waiting)
    assert list(Version.objects.exclude(state="purged")) == [ready]
    assert traffic.get("selections")["items"][0]["version"] == ready.number
    nothing = {
        "dataset": "hard-digits",
        "filters": {"feature": "a", "operator": ">", "value": "99"},
    }
    traffic.post("selections", nothing, status=202)
    run_pending()
    assert traffic.get("selections")["items"][0]["reason"].startswith("No prediction matches")
    unknown = {"dataset": "x", "filters": {"feature": "height", "value": "1"}}
    refused = traffic.api.post(f"{traffic.root}/selections", unknown)
    assert (refused.status_code, b"no_such_feature" in refused.content) == (422, True)
    for odd in ("2026-01-31T12:00", "2026", 2026, 1e300):
        of_no_zone = {"dataset": "x", "filters": {"since": odd}}
        refused = traffic.api.post(f"{traffic.root}/selections", of_no_zone)
        assert (refused.status_code, b"filters.since" in refused.content) == (422, True)


@pytest.mark.thorough
def test_a_selection_asked_for_before_moments_named_their_offset_is_of_utc(
    traffic: Traffic,
) -> None:
    traffic.normal(30)
    traffic.look()
    filters = {"since": "2026-01-31T12:00:00Z", "until": "2026-01-31T13:00:00Z"}
    traffic.post("selections", {"dataset": "hard", "filters": filters}, status=202)
    waiting = Selection.objects.get()
    waiting.filters = {name: text.removesuffix("Z") for name, text in waiting.filters.items()}
    waiting.save()
    run_pending()
    assert traffic.get("selections")["items"][0]["reason"].startswith("No prediction matches")


@pytest.mark.thorough
def test_erasing_by_key_leaves_nothing_and_time_removes_the_rest(traffic: Traffic) -> None:
    ids = traffic.normal(20)
    traffic.look()
    (prediction,) = traffic.get("predictions", prediction_id=ids[0])["items"]
    traffic.post("labels", {"labels": [{"own_id": prediction["own_id"], "value": 1}]})
    traffic.post("labels", {"labels": [{"prediction_id": ids[0], "value": 1}]})
    traffic.post("erasures", {"own_id": prediction["own_id"]}, status=202)
    traffic.post("erasures", {"prediction_id": ids[1]}, status=202)
    run_pending()
    assert {done["rows"] for done in traffic.get("erasures")["items"]} == {1}
    traffic.look()
    left = {item["prediction_id"] for item in traffic.get("predictions")["items"]}
    assert left == set(ids[2:])
    assert not Label.objects.exists()
    for path in raw_root().glob("*/*/*.parquet"):
        content = path.read_bytes()
        assert ids[0].encode() not in content
    traffic.settings(keep_days=1)
    with clock.frozen(clock.now() + timedelta(days=3)):
        assert delete_expired() >= 1
    assert traffic.get("predictions")["items"] == []
    assert not list(raw_root().glob("*/*/*.parquet"))
