"""The pages of monitoring, without scripts: what they say, and what they never claim."""

import re
from datetime import timedelta

import pytest
from django.test import Client

from portal.core import clock
from portal.monitoring.alerting import AlertReason, raise_alert
from portal.monitoring.models import Selection
from tests.personas import Personas
from tests.portal.monitoring.captured import Traffic

PAGE = "/p/vision/endpoints/digits/monitoring"


def _browser(people: Personas, name: str = "bob") -> Client:
    client = Client(headers={"Accept": "text/html"})
    client.force_login(getattr(people, name))
    return client


@pytest.mark.thorough
def test_the_page_of_an_endpoint_never_claims_what_it_does_not_know(
    traffic: Traffic, people: Personas
) -> None:
    bob = _browser(people)
    empty = bob.get(PAGE).content.decode()
    assert "No baseline" in empty
    assert "slip-tag-ok" not in empty
    traffic.normal(1_500, ago=timedelta(minutes=30))
    traffic.look()
    traffic.look()
    shown = bob.get(PAGE).content.decode()
    assert "Steady" in shown
    assert "cannot detect concept drift" in shown
    assert 'id="chart-feature"' in shown
    few = bob.get(PAGE, {"feature": "a", "operator": ">", "value": "2.5"}).content.decode()
    assert "Not enough data" in few
    assert "slip-tag-ok" not in few
    assert bob.get(PAGE, {"revision": "x"}).status_code == 422
    assert bob.get(PAGE, {"feature": "height", "value": "1"}).status_code == 422
    assert _browser(people, "charlie").get(PAGE).status_code == 404


@pytest.mark.thorough
def test_page_and_alert_write_an_accuracy_in_the_same_way(
    traffic: Traffic, people: Personas
) -> None:
    traffic.settings(min_accuracy=0.9)
    ids = traffic.normal(300)
    traffic.look()
    traffic.post("labels", {"labels": [{"prediction_id": it, "value": 1} for it in ids]})
    traffic.look()
    page = _browser(people).get(PAGE).content.decode()
    (measured,) = set(re.findall(r"Measured accuracy is ([\d.]+ %) of 300 labelled", page))
    assert re.search(rf"Accuracy</[^%]*>{measured}<", page), page
    assert "at least 90.0 % is required" in page


def test_alerts_are_snoozed_and_limits_and_channels_changed_on_pages(
    traffic: Traffic, people: Personas
) -> None:
    bob, vera = _browser(people), _browser(people, "vera")
    raise_alert(traffic.endpoint, AlertReason("errors", "Most of them failed."))
    alert = traffic.shown()["alerts"][0]["id"]
    assert "Most of them failed." in vera.get(PAGE).content.decode()
    assert vera.post(f"{PAGE}/alerts/{alert}/snooze").status_code == 403
    assert bob.post(f"{PAGE}/alerts/{alert}/snooze").status_code == 302
    assert "snoozed" in bob.get(PAGE).content.decode()
    form = {"min_accuracy": "0.9", "keep_days": "30", "watch_drift": "on"}
    assert bob.post(f"{PAGE}/watching", form).status_code == 302
    kept = traffic.get("monitoring/settings")
    assert (kept["min_accuracy"], kept["keep_days"], kept["watch_outputs"]) == (0.9, 30, False)
    assert kept["max_error_percent"] is None
    wrong = bob.post(f"{PAGE}/watching", form | {"min_accuracy": "7"})
    assert wrong.status_code == 422
    inside = {"kind": "webhook", "target": "https://169.254.169.254/"}
    refused = bob.post(f"{PAGE}/channels", inside)
    assert (refused.status_code, "private network address" in refused.content.decode()) == (
        422,
        True,
    )
    made = bob.post(f"{PAGE}/channels", {"kind": "webhook", "target": "https://example.org/x"})
    assert "shown only once" in made.content.decode()
    channel = traffic.get("monitoring/channels")[1]["id"]
    assert bob.post(f"{PAGE}/channels/{channel}/remove").status_code == 302
    assert len(traffic.get("monitoring/channels")) == 1


@pytest.mark.thorough
def test_predictions_are_found_and_become_data_on_pages(traffic: Traffic, people: Personas) -> None:
    bob = _browser(people)
    ids = traffic.normal(3)
    traffic.look()
    page = f"{PAGE}/predictions"
    shown = bob.get(page).content.decode()
    assert all(prediction_id in shown for prediction_id in ids)
    html = bob.get(page, {"prediction_id": ids[1]}).content.decode()
    assert ids[1] in html
    assert ids[0] not in html
    details = bob.get(page, {"prediction_id": ids[1], "row": "0"}).content.decode()
    assert 'id="one-title"' in details
    for odd in ("1", "-1", "9" * 30, "x"):
        assert bob.get(page, {"prediction_id": ids[1], "row": odd}).status_code == 200
    minute = timedelta(minutes=1)
    before = (clock.now() - 30 * minute).strftime("%Y-%m-%dT%H:%M")
    assert ids[0] in bob.get(page, {"since": before}).content.decode()
    assert "No matching predictions" in bob.get(page, {"until": before}).content.decode()
    assert bob.get(page, {"until": "soon"}).status_code == 422
    assert bob.get(page, {"feature": "a", "value": "tall"}).status_code == 422
    assert bob.post(
        f"{PAGE}/select?feature=a&operator=%3E&value=0", {"dataset": "hard"}
    ).status_code == (302)
    sent = bob.post(f"{PAGE}/select?until={before}", {"dataset": "older"})
    assert sent.status_code == 302
    older, made = traffic.get("selections")["items"]
    assert Selection.objects.get(pk=older["id"]).filters["until"] == f"{before}:00Z"
    assert (made["dataset"], made["done_at"]) == ("hard", None)
