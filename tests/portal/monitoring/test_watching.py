"""From the first prediction on: baselines, windows, alerts that come once and go by themselves."""

from datetime import timedelta

import numpy as np
import pytest

from portal.accounts.models import OutboxMail
from portal.endpoints.ports import Evidence, judge
from portal.monitoring.alert_delivery import deliver_pending
from portal.monitoring.judge import MonitoringJudge
from portal.monitoring.models import AlertDelivery, CapturedHour, DriftWindow
from portal.monitoring.paths import parts_of
from tests.personas import Personas
from tests.portal.monitoring.captured import Traffic

_AGO = [timedelta(minutes=minutes) for minutes in (50, 40, 30, 20, 10, 5)]


@pytest.mark.thorough
def test_too_little_is_never_green(traffic: Traffic) -> None:
    traffic.look()
    shown = traffic.shown()
    assert (shown["verdict"], shown["predictions"], shown["features"]) == ("no_baseline", 0, [])
    traffic.normal(150)
    traffic.look()
    shown = traffic.shown()
    assert (shown["verdict"], shown["predictions"]) == ("no_baseline", 150)
    traffic.normal(900)
    traffic.look()
    shown = traffic.shown()
    assert "first 1,050 rows" in shown["baseline"]


@pytest.mark.thorough
def test_drift_alarms_in_the_second_window_and_resolves_by_itself(
    traffic: Traffic, people: Personas
) -> None:
    traffic.normal(1_500, ago=_AGO[0])
    traffic.look()
    traffic.look()
    assert traffic.shown()["verdict"] == "steady"
    assert traffic.shown()["alerts"] == []
    traffic.normal(1_000, shift=0.8, ago=_AGO[1])
    traffic.look()
    assert traffic.feature("c")["verdict"] == "different"
    assert traffic.shown()["alerts"] == []
    traffic.normal(1_000, shift=0.8, ago=_AGO[2])
    traffic.look()
    traffic.look()
    shown = traffic.shown()
    assert (shown["verdict"], shown["features"][0]["name"]) == ("drifted", "c")
    assert {feature["verdict"] for feature in shown["features"][1:]} == {"steady"}
    (alert,) = shown["alerts"]
    assert (alert["kind"], alert["state"], alert["revision"]) == ("drift", "firing", 1)
    assert "c (" in alert["reason"]
    assert deliver_pending() == 1
    assert deliver_pending() == 0
    mail = OutboxMail.objects.get()
    assert (mail.to, "digits: drift" in mail.subject) == ("bob@example.org", True)
    assert alert["reason"] in mail.body
    snoozed = traffic.post(f"monitoring/alerts/{alert['id']}/snooze", {"hours": 2})
    assert snoozed["snoozed_until"] is not None
    # The window that was open holds both; the one after it is as it was in training.
    traffic.normal(2_000, ago=_AGO[3])
    traffic.look()
    (alert,) = traffic.shown()["alerts"]
    assert alert["state"] == "resolved"
    # It was snoozed, so nobody is told that it is over either.
    assert AlertDelivery.objects.filter(sent_at=None).count() == 0


@pytest.mark.thorough
def test_repeating_a_pass_changes_nothing_and_files_are_closed(traffic: Traffic) -> None:
    ids = traffic.normal(1_200, ago=timedelta(hours=3))
    for _ in range(3):
        traffic.look()
    shown = traffic.shown(revision=1)
    assert shown["predictions"] == len(ids)
    hours = CapturedHour.objects.all()
    assert all(hour.is_closed and len(hour.parts) == 1 for hour in hours)
    # One is full; the rest is enough, and waited for longer than an hour.
    assert [window.rows for window in DriftWindow.objects.order_by("ends_at")] == [1_000, 200]
    # The same files again, as after a crash before the rows were written: nothing counts twice.
    CapturedHour.objects.update(seen=[])
    traffic.look()
    traffic.look()
    assert traffic.shown()["predictions"] == len(ids)
    assert len(parts_of(CapturedHour.objects.all())) == len(hours)


def test_views_by_slice_and_revision_and_span(traffic: Traffic) -> None:
    traffic.normal(1_500, ago=_AGO[0])
    traffic.look()
    traffic.look()
    whole = traffic.shown()
    sliced = traffic.shown(feature="a", operator=">", value="0")
    assert 500 < sliced["rows"] < 1_000
    assert sliced["slice"] == "a > 0"
    assert sum(hour["predictions"] for hour in sliced["hours"]) == sliced["rows"]
    assert sliced["predictions"] == sliced["rows"]
    assert {hour["p50_ms"] for hour in sliced["hours"]} == {2.0}
    assert {hour["failed"] for hour in sliced["hours"]} == {0}
    assert sliced["features"][0]["name"] in ("a", "class", "confidence", "prediction[0]")
    assert sliced["verdict"] == "different"
    assert (
        next(feature for feature in sliced["features"] if feature["name"] == "b")["verdict"]
        == "steady"
    )
    few = traffic.shown(feature="a", operator=">", value="2.5")
    assert {feature["verdict"] for feature in few["features"]} == {"not_enough_data"}
    assert whole["hours"][0]["predictions"] >= 1
    assert traffic.shown(revision=1)["revision"] == 1
    refused = traffic.api.get(f"{traffic.root}/monitoring?revision=7")
    assert refused.status_code == 404
    refused = traffic.api.get(f"{traffic.root}/monitoring?feature=height&value=3")
    assert (refused.status_code, b"no_such_feature" in refused.content) == (422, True)
    refused = traffic.api.get(f"{traffic.root}/monitoring?feature=a&value=tall")
    assert (refused.status_code, b"no_number" in refused.content) == (422, True)


@pytest.mark.thorough
def test_every_language_of_the_gateway_is_read(traffic: Traffic) -> None:
    image = np.arange(64.0).tolist()
    traffic.capture(
        [
            {"inputs": [image]},
            {"instances": [image, image]},
            {"dataframe_records": [{"a": 1, "city": "Bern"}]},
            {"inputs": {"a": [1.0, 2.0], "city": ["Bern", None]}},
            {
                "id": "mine",
                "inputs": [
                    {"name": "x", "datatype": "FP32", "shape": [1, 64], "data": image},
                ],
            },
            b"a,city\n1,Bern\n2,Ulm\n",
            b"\x00\x01",
        ],
        [
            {"predictions": [1]},
            {"predictions": [1, 2]},
            {"predictions": [{"price": 3.5}]},
            {"predictions": [1.5, 2.5]},
            {"outputs": [{"name": "y", "datatype": "FP32", "shape": [1], "data": [3.0]}]},
            {"predictions": ["yes", "no"]},
            {"error": "odd"},
        ],
    )
    traffic.look()
    items = traffic.get("predictions", limit=20)["items"]
    assert len(items) == 10
    by_city = traffic.get("predictions", feature="city", value="Bern")["items"]
    assert [item["inputs"]["city"] for item in by_city] == ["Bern"] * 3
    pixels = traffic.get("predictions", feature="x[63]", operator=">=", value="63")["items"]
    assert len(pixels) == 4
    (prediction,) = traffic.get("predictions", own_id="mine")["items"]
    assert prediction["outputs"]["y"] == 3.0
    assert traffic.shown()["unreadable"] == 1


@pytest.mark.thorough
def test_the_judge_takes_back_a_revision_whose_outputs_differ(traffic: Traffic) -> None:
    assert isinstance(judge(), MonitoringJudge)
    traffic.normal(1_500, ago=_AGO[0])
    traffic.look()
    traffic.look()
    evidence = Evidence(
        project_id=traffic.endpoint.project_id,
        endpoint_id=traffic.endpoint_id,
        revision_id=traffic.revision_id,
        previous_id=None,
        since=DriftWindow.objects.latest("ends_at").ends_at - timedelta(hours=1),
    )
    assert judge().rollback_reason(evidence) == ""
    for ago in _AGO[1:3]:
        inputs = traffic.random.normal(size=(1_000, 5)).tolist()
        requests = [
            {"dataframe_split": {"columns": ["a", "b", "c", "d", "e"], "data": [row]}}
            for row in inputs
        ]
        traffic.capture(requests, [{"predictions": [[0.9, 0.1]]}] * 1_000, ago=ago)
        traffic.look()
    assert "Its outputs differ" in judge().rollback_reason(evidence)
