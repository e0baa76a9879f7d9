"""Lost captures and answers of a standby raise an alert and a mail, and resolve by themselves."""

from typing import Any

import pytest

from portal.accounts.models import OutboxMail
from portal.monitoring.alert_delivery import deliver_pending
from tests.personas import Personas
from tests.portal.endpoints.pages import ONE, browser_of
from tests.portal.endpoints.serving import GatewayClient, Lab
from tests.portal.monitoring.captured import Traffic

pytestmark = pytest.mark.postgres
_FULL = "the capture log cannot be written: No space left on device"


def report_incident(gateway: GatewayClient, lab: Lab, **counts: int) -> None:
    """Let a gateway report that predictions were not captured, or served by a standby."""
    endpoint_id, revision_id = lab.ids(1)
    revision = {
        "revision_id": revision_id,
        "latency": {"counts": [0] * 22, "sum_ms": 0},
        **counts,
    }
    gateway.report(
        endpoints=[{"endpoint_id": endpoint_id, "revisions": [revision]}],
        capture={"written": 0, "dropped": 1, "waiting_bytes": 0, "reason": _FULL},
    )


@pytest.mark.parametrize(
    ("counts", "kind", "sentence", "label"),
    [
        (
            {"answered": 700, "captured": 97, "uncaptured": 603},
            "not_captured",
            "603 predictions were served by revision 1 but not captured",
            "Predictions not captured",
        ),
        (
            {"answered": 258, "captured": 258, "fallback": 258},
            "standby_answers",
            "258 predictions were served since",
            "Served by a standby",
        ),
    ],
)
def test_an_incident_raises_one_alert_that_is_mailed_and_resolves(
    lab: Lab,
    traffic: Traffic,
    gateway: GatewayClient,
    people: Personas,
    counts: dict[str, int],
    kind: str,
    sentence: str,
    label: str,
) -> None:
    report_incident(gateway, lab, **counts)
    traffic.look()
    (alert,) = traffic.get("monitoring")["alerts"]
    assert (alert["kind"], alert["state"], alert["revision"]) == (kind, "firing", 1)
    assert sentence in alert["reason"]
    page: Any = browser_of(people.bob).get(f"{ONE}/monitoring")
    assert label in page.content.decode()

    # Seen again, also after the incident has ended, it is the same alert.
    with lab.later(seconds=60):
        lab.look_after()
        traffic.look()
        (alert,) = traffic.get("monitoring")["alerts"]
        assert "between" in alert["reason"]
    deliver_pending()
    (mail,) = OutboxMail.objects.filter(to=people.bob.email, subject__contains="digits")
    assert kind.replace("_", " ") in mail.subject
    assert sentence.partition(" since")[0] in mail.body

    with lab.later(minutes=16):
        lab.look_after()
        traffic.look()
        states = [alert["state"] for alert in traffic.get("monitoring")["alerts"]]
        assert "firing" not in states
