"""Limits of monitoring: an answer says how much of it is left out."""

from datetime import timedelta

import pytest

from portal.core import clock
from portal.endpoints.models import Endpoint
from portal.monitoring import quality_points, report, windows
from portal.monitoring.adapters import parquet
from portal.monitoring.models import Alert, DriftWindow, Label
from tests.personas import Personas, json_of
from tests.portal.endpoints.pages import browser_of
from tests.portal.monitoring.captured import Traffic


def _batches(traffic: Traffic, count: int, rows: int) -> list[str]:
    """Capture requests of several rows."""
    request = {"dataframe_split": {"columns": ["a"], "data": [[float(n)] for n in range(rows)]}}
    response = {"predictions": [float(n % 2) for n in range(rows)]}
    return traffic.capture([request] * count, [response] * count)


@pytest.mark.thorough
@pytest.mark.postgres
def test_labels_of_late_rows_of_large_requests_are_measured(
    traffic: Traffic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "SLICE_LABELS", 3)
    ids = _batches(traffic, 2, 20)
    traffic.look()
    labels = [
        {"prediction_id": ids[0], "row": 19, "value": 1},
        {"prediction_id": ids[1], "row": 18, "value": 0},
    ]
    traffic.post("labels", {"labels": labels})
    traffic.look()
    quality = traffic.shown(feature="a", operator=">=", value="0")["quality"]
    assert (quality["labelled"], quality["labels_left_out"]) == (2, 0)


@pytest.mark.thorough
@pytest.mark.postgres
def test_a_slice_says_how_many_labels_are_not_measured(
    traffic: Traffic, people: Personas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "SLICE_LABELS", 3)
    ids = _batches(traffic, 5, 1)
    traffic.look()
    traffic.post(
        "labels",
        {"labels": [{"prediction_id": prediction_id, "value": 0} for prediction_id in ids]},
    )
    traffic.look()
    assert Label.objects.count() == 5
    quality = traffic.shown(feature="a", operator=">=", value="0")["quality"]
    assert (quality["labelled"], quality["labels_left_out"]) == (3, 2)
    assert traffic.shown()["quality"]["labels_left_out"] == 0
    page = "/p/vision/endpoints/digits/monitoring?feature=a&operator=%3E%3D&value=0"
    assert "2 older labels" in browser_of(people.bob).get(page).content.decode()


@pytest.mark.thorough
@pytest.mark.postgres
def test_classes_and_cells_that_are_left_out_are_counted(
    traffic: Traffic, people: Personas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quality_points, "_MOST_CLASSES", 2)
    monkeypatch.setattr(quality_points, "_MOST_CELLS", 3)
    names = [f"class-{n}" for n in range(4)]
    ids = traffic.capture(
        [{"inputs": {"a": [1.0]}}] * 4, [{"predictions": [name]} for name in names]
    )
    traffic.look()
    labels = [
        {"prediction_id": prediction_id, "value": name}
        for prediction_id, name in zip(ids, names, strict=True)
    ]
    traffic.post("labels", {"labels": labels})
    traffic.look()
    quality = traffic.shown()["quality"]
    assert (len(quality["classes"]), quality["classes_left_out"]) == (2, 2)
    assert (len(quality["confusion"]), quality["confusion_left_out"]) == (3, 1)
    page = browser_of(people.bob).get("/p/vision/endpoints/digits/monitoring").content.decode()
    assert "2 more classes" in page
    assert "confusion matrix is not shown" in page


@pytest.mark.thorough
@pytest.mark.postgres
def test_features_and_windows_that_are_left_out_are_counted(
    traffic: Traffic, people: Personas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "_MOST_FEATURES", 2)
    monkeypatch.setattr(windows, "_MOST", 1)
    for _ in range(3):
        traffic.normal(600)
        traffic.look()
    window = DriftWindow.objects.get()
    fields = {
        field.attname: getattr(window, field.attname) for field in window._meta.concrete_fields
    }
    earlier = window.ends_at - timedelta(seconds=1)
    DriftWindow.objects.create(**fields | {"id": "win_" + "0" * 26, "ends_at": earlier})
    shown = traffic.shown()
    assert len(shown["features"]) == 2
    assert shown["features_left_out"] >= 4
    assert len(shown["windows"]) == 1
    assert shown["windows_left_out"] == 1
    page = browser_of(people.bob).get("/p/vision/endpoints/digits/monitoring").content.decode()
    assert f"{shown['features_left_out']} more features" in page
    assert "1 more window not shown here." in page


@pytest.mark.thorough
@pytest.mark.postgres
def test_alerts_that_are_left_out_are_counted(
    traffic: Traffic, people: Personas, monkeypatch: pytest.MonkeyPatch
) -> None:
    traffic.normal(1)
    traffic.look()
    for number in range(3):
        Alert.objects.create(
            endpoint=Endpoint.objects.get(),
            kind="latency",
            state="resolved",
            reason=f"slow {number}",
            resolved_at=clock.now(),
        )
    assert traffic.shown()["alerts_left_out"] == 0
    monkeypatch.setattr(report, "_ALERTS", 1)
    shown = traffic.shown()
    assert (len(shown["alerts"]), shown["alerts_left_out"]) == (1, 2)
    page = browser_of(people.bob).get("/p/vision/endpoints/digits/monitoring").content.decode()
    words = "2 more alerts not shown here: <code>slipway endpoint monitoring alerts digits"
    assert words in page


@pytest.mark.thorough
@pytest.mark.postgres
def test_an_id_that_is_too_long_is_not_another_id(traffic: Traffic) -> None:
    request = {"inputs": {"a": [1.0]}, "client_request_id": "x" * 200 + "-1"}
    traffic.capture([request], [{"predictions": [1.0]}])
    traffic.look()
    traffic.post("labels", {"labels": [{"own_id": "x" * 200, "value": 1}]})
    traffic.look()
    assert Label.objects.get().prediction_id == ""


@pytest.mark.thorough
def test_predictions_of_thousands_of_columns_are_searched(
    traffic: Traffic, people: Personas
) -> None:
    names = [f"gene_{n}" for n in range(2_000)]
    data = traffic.random.normal(size=(6, 50, 2_000))
    requests = [{"dataframe_split": {"columns": names, "data": values.tolist()}} for values in data]
    ids: list[str] = []
    for hour in (2, 3, 4):
        some = requests[2 * hour - 4 : 2 * hour - 2]
        answers = [{"predictions": [0.5] * 50}] * 2
        ids += traffic.capture(some, answers, ago=timedelta(hours=hour))
    traffic.look()
    first = traffic.get("predictions", limit=60)
    rows = {
        (prediction["prediction_id"], prediction["row"]): prediction
        for prediction in first["items"]
    }
    assert len(rows) == 60
    assert {name for name, _ in rows} == {ids[1], ids[0]}
    for (name, row), prediction in rows.items():
        expected = dict(zip(names, data[ids.index(name), row].tolist(), strict=True))
        assert prediction["inputs"] == expected
    rest = traffic.get("predictions", limit=60, cursor=first["next_cursor"])["items"]
    assert {prediction["prediction_id"] for prediction in rest} == {ids[0], ids[3]}
    query = "feature=gene_1999&operator=%3E&value=0"
    page = browser_of(people.bob).get(f"/p/vision/endpoints/digits/monitoring/predictions?{query}")
    assert (page.status_code, ids[1] in page.content.decode()) == (200, True)
    slice_ = traffic.shown(feature="gene_7", operator=">", value="0")
    assert slice_["rows"] == int((data[:, :, 7] > 0).sum())


@pytest.mark.thorough
def test_a_search_that_needs_too_much_memory_says_what_to_narrow_down(
    traffic: Traffic, people: Personas, monkeypatch: pytest.MonkeyPatch
) -> None:
    traffic.capture([{"inputs": {"a": ["x" * 900] * 20_000}}], [{"predictions": [1.0] * 20_000}])
    traffic.look()
    monkeypatch.setattr(parquet, "MEMORY", "1MB")
    query = "feature=a&operator=!%3D&value=y"
    refused = traffic.api.get(f"{traffic.root}/monitoring?{query}")
    assert refused.status_code == 422, refused.content
    body = json_of(refused)
    assert (body["code"], "shorter time range" in body["next_step"]) == (
        "predictions_too_large",
        True,
    )
    page = browser_of(people.bob).get(f"/p/vision/endpoints/digits/monitoring?{query}")
    assert page.status_code < 500
    assert "shorter time range" in page.content.decode()


@pytest.mark.thorough
def test_columns_alike_in_their_first_characters_stay_apart(traffic: Traffic) -> None:
    first, second = "x" * 200 + "-a", "x" * 200 + "-b"
    traffic.capture([{"inputs": {first: [1.0], second: [2.0]}}], [{"predictions": [1.0]}])
    traffic.look()
    [shown] = traffic.get("predictions")["items"]
    assert sorted(shown["inputs"].values()) == [1.0, 2.0]
    assert all("of 202 characters" in name and len(name) <= 200 for name in shown["inputs"])


@pytest.mark.thorough
def test_a_class_is_not_another_that_begins_like_it(traffic: Traffic) -> None:
    ids = traffic.capture([{"inputs": {"a": [1.0]}}], [{"predictions": ["x" * 200 + "-1"]}])
    traffic.look()
    traffic.post("labels", {"labels": [{"prediction_id": ids[0], "value": "x" * 200}]})
    traffic.look()
    quality = traffic.shown()["quality"]
    assert (quality["labelled"], quality["figures"]["accuracy"]) == (1, 0)


@pytest.mark.thorough
def test_long_texts_alike_in_length_and_beginning_stay_apart(traffic: Traffic) -> None:
    texts = ["x" * 1_500 + "-a", "x" * 1_500 + "-b"]
    traffic.capture([{"inputs": {"a": [text]}} for text in texts], [{"predictions": [1.0]}] * 2)
    traffic.look()
    shown = {prediction["inputs"]["a"] for prediction in traffic.get("predictions")["items"]}
    assert len(shown) == 2


@pytest.mark.thorough
def test_numbers_among_texts_keep_all_their_digits(traffic: Traffic) -> None:
    for value in ("unknown", 0.1234567891, 1234567.25):
        traffic.capture([{"inputs": {"a": [value]}}], [{"predictions": [1.0]}])
        traffic.look()
    shown = {str(prediction["inputs"]["a"]) for prediction in traffic.get("predictions")["items"]}
    assert shown == {"unknown", "0.1234567891", "1234567.25"}


@pytest.mark.thorough
def test_integers_that_no_double_holds_are_shown_as_they_were_sent(
    traffic: Traffic, people: Personas
) -> None:
    number = 2**53 + 1
    data = [[123456, 0.123456789], [number, 1e300]]
    many = {"dataframe_split": {"columns": ["n", "x"], "data": data}}
    (sent,) = traffic.capture([many], [{"predictions": [1.0, 2.0]}])
    traffic.look()
    shown = {
        prediction["row"]: prediction["inputs"]
        for prediction in traffic.get("predictions")["items"]
    }
    assert shown == {0: {"n": 123456, "x": 0.123456789}, 1: {"n": number, "x": 1e300}}
    bob, address = browser_of(people.bob), "/p/vision/endpoints/digits/monitoring/predictions"
    pages = [
        bob.get(f"{address}?prediction_id={sent}&row={row}").content.decode() for row in (0, 1)
    ]
    for page, text in ((0, 123456), (0, 0.123456789), (1, number)):
        assert f"<dd>{text}</dd>" in pages[page]
