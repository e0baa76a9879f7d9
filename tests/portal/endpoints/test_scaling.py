"""An endpoint whose load needs more replicas than it may run says so, once, with the next step."""

from typing import Any

import pytest

from portal.endpoints.models import EndpointEvent
from tests.personas import Personas
from tests.portal.endpoints.pages import ALL, ONE, browser_of, text_of
from tests.portal.endpoints.serving import GatewayClient, Lab


def _told(kind: str) -> list[str]:
    events = EndpointEvent.objects.filter(kind=kind).order_by("pk")
    return list(events.values_list("message", flat=True))


def _report(lab: Lab, gateway: GatewayClient, **what: Any) -> None:
    endpoint_id, revision_id = lab.ids(1)
    gateway.did(endpoint_id, revision_id, answered=10, **what)
    lab.look_after()


@pytest.mark.thorough
def test_a_load_beyond_the_bound_is_told_once_and_ends_after_a_calm_time(
    lab: Lab, gateway: GatewayClient, people: Personas
) -> None:
    lab.serving(max_replicas=2, target_concurrency=10)
    bob, vera = browser_of(people.bob), browser_of(people.vera)
    assert lab.show()["missing_replicas_reason"] == ""
    _report(lab, gateway, in_flight=45)
    lab.settle()
    reason = lab.show()["missing_replicas_reason"]
    assert reason == (
        "The load needs 5 replicas, but max_replicas is 2. 45 requests are in flight; the "
        "target is 10 for each replica. Requests queue, and some may be rejected. Raise "
        "max_replicas to 5, or target_concurrency if each replica can handle more."
    )
    assert _told("capped") == [reason]
    page = text_of(bob.get(ONE))
    assert reason in page
    assert f'href="{ONE}/change">Change replicas' in page
    assert reason in text_of(bob.get(ALL))
    assert "Change replicas" not in text_of(vera.get(ONE))
    for in_flight in (31, 12, 44, 45):
        _report(lab, gateway, in_flight=in_flight)
    assert _told("capped") == [reason]
    _report(lab, gateway, in_flight=61)
    assert "The load needs 7 replicas" in lab.show()["missing_replicas_reason"]
    _report(lab, gateway, in_flight=5)
    assert lab.show()["missing_replicas_reason"]
    with lab.later(minutes=2.1):
        _report(lab, gateway, in_flight=5)
        assert lab.show()["missing_replicas_reason"] == ""
        assert _told("uncapped") == ["The load needs no more than max_replicas (2) again."]
        _report(lab, gateway, in_flight=45)
        assert len(_told("capped")) == 2


@pytest.mark.thorough
def test_a_higher_bound_takes_the_sentence_away_at_once(lab: Lab, gateway: GatewayClient) -> None:
    lab.serving(max_replicas=1, target_concurrency=10)
    _report(lab, gateway, in_flight=25)
    assert "Raise max_replicas to 3" in lab.show()["missing_replicas_reason"]
    changed = lab.api.patch("projects/vision/endpoints/digits", {"max_replicas": 2})
    assert changed.status_code == 200, changed.content
    assert "but max_replicas is 2" in lab.show()["missing_replicas_reason"]
    lab.api.patch("projects/vision/endpoints/digits", {"max_replicas": 3})
    _report(lab, gateway, in_flight=25)
    assert lab.show()["missing_replicas_reason"] == ""
    assert lab.show()["desired_replicas"] == 3


def test_a_pause_takes_it_away_too(lab: Lab, gateway: GatewayClient) -> None:
    lab.serving(target_concurrency=10)
    _report(lab, gateway, in_flight=25)
    assert lab.show()["missing_replicas_reason"]
    lab.do("pause")
    assert lab.show()["missing_replicas_reason"] == ""
    lab.do("resume")
    assert lab.show()["missing_replicas_reason"] == ""


@pytest.mark.thorough
def test_waiting_requests_bring_one_replica_at_a_time(lab: Lab, gateway: GatewayClient) -> None:
    lab.serving(max_replicas=2, target_queue_ms=50)
    for times in range(1, 5):
        _report(lab, gateway, in_flight=4, queue_ms_sum=900 * times)
    endpoint = lab.show()
    # The one that starts will take some of it: until then nobody knows whether that is enough.
    assert (endpoint["desired_replicas"], endpoint["missing_replicas_reason"]) == (2, "")
    assert "From 1 to 2 replicas: Requests waited 90 ms on average" in lab.story()
    lab.settle()
    _report(lab, gateway, in_flight=4, queue_ms_sum=900 * 5)
    assert (
        "Requests waited 90 ms on average; the target is 50 ms"
        in lab.show()["missing_replicas_reason"]
    )
