"""Open alerts are visible wherever their endpoint is, until they resolve or are snoozed."""

from typing import Any

import pytest

from portal.accounts.models import User
from tests.personas import Api, Personas, json_of
from tests.portal.endpoints.pages import ONE, browser_of
from tests.portal.endpoints.serving import GatewayClient, Lab
from tests.portal.monitoring.captured import Traffic
from tests.portal.monitoring.test_incident_alerts import report_incident

pytestmark = pytest.mark.postgres
_REASON = "258 predictions were served since"
_CARDS = ("/notifications/card", "/p/vision/notifications/card")
_PAGES = ("/notifications", *_CARDS, ONE)
_LISTS = ("/", "/p/vision", "/p/vision/endpoints")


def _text(user: User, path: str) -> str:
    page: Any = browser_of(user).get(path)
    return str(page.content.decode())


def _open(user: User) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = json_of(Api.of(user).get("notifications"))["items"]
    return items


def test_an_open_alert_is_on_home_the_project_the_list_the_endpoint_and_under_the_bell(
    lab: Lab, traffic: Traffic, gateway: GatewayClient, people: Personas
) -> None:
    report_incident(gateway, lab, answered=258, captured=258, fallback=258)
    traffic.look()
    (item,) = _open(people.vera)
    assert (item["kind"], item["title"]) == ("alert", "digits: standby answers")
    assert item["path"] == f"{ONE}/monitoring"
    assert not item["waits_for_you"]
    assert _open(people.charlie) == []
    for path in _PAGES:
        assert _REASON in _text(people.vera, path)
    for path in _LISTS:
        assert "1 alert</a>" in _text(people.vera, path)
    assert "Monitoring</span> raised an alert in vision" in _text(people.alice, "/")
    assert "1 open" in _text(people.vera, "/notifications/count")
    for path in ("/", "/notifications", "/notifications/card", "/notifications/count"):
        page = _text(people.charlie, path)
        assert _REASON not in page
        assert "1 open" not in page

    snooze = f"projects/vision/endpoints/digits/monitoring/alerts/{item['id']}/snooze"
    assert Api.of(people.bob).post(snooze, {"hours": 2}).status_code == 200
    assert _open(people.vera) == []
    assert _REASON not in _text(people.vera, "/p/vision/notifications/card")
    with lab.later(hours=3):
        assert len(_open(people.vera)) == 1
        lab.look_after()
        traffic.look()
        assert _open(people.vera) == []
