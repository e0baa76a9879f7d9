"""Predictions that were not captured, or answered by a standby, are counted where people look."""

from typing import Any

import pytest
from django.test import Client

from tests.personas import Personas, json_of
from tests.portal.endpoints.pages import ONE, browser_of
from tests.portal.endpoints.serving import GatewayClient, Lab

pytestmark = pytest.mark.postgres

FULL = "the capture log cannot be written: No space left on device"


def _counted(gateway: GatewayClient, ids: tuple[str, str], **counts: Any) -> None:
    """Report totals of a revision, and why captures fail."""
    endpoint_id, revision_id = ids
    latency = {"counts": [0] * 22, "sum_ms": 0}
    revision = {"revision_id": revision_id, "latency": latency} | counts
    gateway.report(
        endpoints=[{"endpoint_id": endpoint_id, "revisions": [revision]}],
        capture={"written": 0, "dropped": 1, "waiting_bytes": 0, "reason": FULL},
    )


def _text(page: Any) -> str:
    return " ".join(page.content.decode().split())


def test_predictions_that_were_not_captured_are_told_everywhere(
    lab: Lab, gateway: GatewayClient, people: Personas
) -> None:
    lab.serving()
    ids = lab.ids(1)
    _counted(gateway, ids, answered=100, captured=97, uncaptured=3)
    _counted(gateway, ids, answered=700, captured=97, uncaptured=603)
    shown = lab.show()
    assert (shown["captured"], shown["uncaptured"]) == (97, 603)
    assert (lab.revision(1)["captured"], lab.revision(1)["uncaptured"]) == (97, 603)
    (incident,) = shown["incidents"]
    assert (incident["kind"], incident["predictions"]) == ("uncaptured", 603)
    assert incident["ended_at"] is None
    message = "603 predictions were served by revision 1 but not captured since"
    assert message in incident["message"]
    assert FULL in incident["message"]
    # One event for the whole span, however many reports there were.
    assert lab.story().count("not captured") == 1
    assert message in lab.story()
    (minute,) = json_of(lab.api.get("projects/vision/endpoints/digits/traffic"))
    assert (minute["captured"], minute["uncaptured"]) == (97, 603)
    watched = json_of(lab.api.get("projects/vision/endpoints/digits/monitoring"))
    assert (watched["captured"], watched["uncaptured"]) == (97, 603)
    bob = browser_of(people.bob)
    for page in (ONE, f"{ONE}/monitoring"):
        text = _text(bob.get(page))
        assert message in text
        assert "of 700 served" in text
    home = _text(browser_of(people.charlie).get("/"))
    assert "603 predictions were served but not captured, the last at" in home
    assert "digits" not in home, "of another project"
    ready = Client().get("/readyz").json()
    assert FULL in ready["problems"]["capture"]


@pytest.mark.thorough
def test_a_span_without_more_ends_the_incident_and_the_next_one_is_another(
    lab: Lab, gateway: GatewayClient
) -> None:
    lab.serving()
    ids = lab.ids(1)
    _counted(gateway, ids, answered=3, uncaptured=3)
    with lab.later(seconds=11):
        lab.look_after()
        (incident,) = lab.show()["incidents"]
        assert incident["ended_at"] == incident["last_at"]
        assert "not captured between" in incident["message"]
        _counted(gateway, ids, answered=8, captured=4, uncaptured=4)
        lab.look_after()
        assert [entry["predictions"] for entry in lab.show()["incidents"]] == [1, 3]
        assert lab.story().count("not captured") == 2
    with lab.later(hours=2):
        lab.look_after()
        assert lab.show()["incidents"] == []
        assert "capture" not in Client().get("/readyz").json()["problems"]


@pytest.mark.thorough
def test_answers_of_a_standby_are_in_the_history_with_their_count(
    lab: Lab, gateway: GatewayClient, people: Personas
) -> None:
    lab.serving()
    lab.promote("2", bake_s=0)
    lab.settle()
    standby = {
        revision["model_version"]: revision["is_standby"]
        for revision in gateway.route()["revisions"]
    }
    assert standby == {"1": True, "2": False}
    _counted(gateway, lab.ids(1), answered=258, fallback=258, captured=258)
    with lab.later(seconds=11):
        lab.look_after()
        (incident,) = lab.show()["incidents"]
        assert (incident["kind"], incident["revision"]) == ("fallback", 1)
        assert "258 predictions were served between" in incident["message"]
        assert "by revision 1 (digits 1), a standby" in incident["message"]
        assert incident["message"] in lab.story()
        assert incident["message"] in _text(browser_of(people.bob).get(ONE))
    assert lab.revision(1)["answered_as_standby"] == 258


def test_the_fallback_is_a_setting_with_availability_as_its_default(
    lab: Lab, gateway: GatewayClient, people: Personas
) -> None:
    assert lab.serving()["fallback"] == "standby"
    assert gateway.route()["fallback"] == "standby"
    address = "projects/vision/endpoints/digits"
    assert lab.api.patch(address, {"fallback": "off"}).status_code == 200
    assert (lab.show()["fallback"], gateway.route()["fallback"]) == ("off", "off")
    assert "Bob changed fallback" in lab.story()
    assert "503 with Retry-After" in _text(browser_of(people.bob).get(f"{ONE}/settings"))
    assert lab.api.patch(address, {"fallback": "perhaps"}).status_code == 422
    form = _text(browser_of(people.bob).get(f"{ONE}/change"))
    assert "When no replica of a revision with traffic is ready" in form


def test_metrics_of_the_portal_count_what_was_lost(
    lab: Lab, gateway: GatewayClient, settings: Any
) -> None:
    lab.serving()
    _counted(gateway, lab.ids(1), answered=9, fallback=2, captured=6, uncaptured=3)
    token = settings.SLIPWAY_METRICS_TOKEN
    answer = Client().get("/metrics", headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == 200
    text = answer.content.decode()
    for outcome, count in (("answered", 9), ("uncaptured", 3), ("fallback", 2)):
        labels = f'endpoint="digits",outcome="{outcome}"'
        assert f"slipway_endpoint_predictions_total{{{labels}}} {count}.0" in text
