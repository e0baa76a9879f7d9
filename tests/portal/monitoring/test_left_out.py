"""Limits of monitoring: an answer says how much of it is left out."""

from datetime import timedelta

import pytest

from portal.monitoring import quality_points, viewing, windows
from portal.monitoring.models import DriftWindow, Label
from tests.personas import Personas
from tests.portal.endpoints.pages import browser_of
from tests.portal.monitoring.captured import Traffic

pytestmark = pytest.mark.postgres


def _batches(traffic: Traffic, count: int, rows: int) -> list[str]:
    """Capture requests of several rows."""
    request = {"dataframe_split": {"columns": ["a"], "data": [[float(n)] for n in range(rows)]}}
    response = {"predictions": [float(n % 2) for n in range(rows)]}
    return traffic.capture([request] * count, [response] * count)


def test_labels_of_late_rows_of_large_requests_are_measured(
    traffic: Traffic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(viewing, "SLICE_LABELS", 3)
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


def test_a_slice_says_how_many_labels_are_not_measured(
    traffic: Traffic, people: Personas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(viewing, "SLICE_LABELS", 3)
    ids = _batches(traffic, 5, 1)
    traffic.look()
    traffic.post("labels", {"labels": [{"prediction_id": one, "value": 0} for one in ids]})
    traffic.look()
    assert Label.objects.count() == 5
    quality = traffic.shown(feature="a", operator=">=", value="0")["quality"]
    assert (quality["labelled"], quality["labels_left_out"]) == (3, 2)
    assert traffic.shown()["quality"]["labels_left_out"] == 0
    page = "/p/vision/endpoints/digits/monitoring?feature=a&operator=%3E%3D&value=0"
    assert "2 older labels" in browser_of(people.bob).get(page).content.decode()


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
    labels = [{"prediction_id": one, "value": name} for one, name in zip(ids, names, strict=True)]
    traffic.post("labels", {"labels": labels})
    traffic.look()
    quality = traffic.shown()["quality"]
    assert (len(quality["classes"]), quality["classes_left_out"]) == (2, 2)
    assert (len(quality["confusion"]), quality["confusion_left_out"]) == (3, 1)
    page = browser_of(people.bob).get("/p/vision/endpoints/digits/monitoring").content.decode()
    assert "2 more classes" in page
    assert "confusion matrix is not shown" in page


def test_features_and_windows_that_are_left_out_are_counted(
    traffic: Traffic, people: Personas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(viewing, "_MOST_FEATURES", 2)
    monkeypatch.setattr(windows, "_MOST", 1)
    for _ in range(3):
        traffic.normal(600)
        traffic.look()
    window = DriftWindow.objects.get()
    fields = {one.attname: getattr(window, one.attname) for one in window._meta.concrete_fields}
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


def test_an_id_that_is_too_long_is_not_another_id(traffic: Traffic) -> None:
    request = {"inputs": {"a": [1.0]}, "client_request_id": "x" * 200 + "-1"}
    traffic.capture([request], [{"predictions": [1.0]}])
    traffic.look()
    traffic.post("labels", {"labels": [{"own_id": "x" * 200, "value": 1}]})
    traffic.look()
    assert Label.objects.get().prediction_id == ""
