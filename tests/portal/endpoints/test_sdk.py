"""The SDK creates, promotes, scales and ends endpoints, through the portal's own application."""

from collections.abc import Iterable, Iterator
from typing import Any

import httpx
import pytest
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections

import slipway
from portal.endpoints.models import Replica
from slipway import errors
from tests.personas import Personas, make_token
from tests.portal.endpoints.serving import Lab

_application = get_wsgi_application()


def _in_this_transaction(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    """Answer as the portal does, but keep the connection of the test, as Django's client does."""
    request_started.disconnect(close_old_connections)
    request_finished.disconnect(close_old_connections)
    try:
        answer = _application(environ, start_response)
        body = b"".join(answer)
        answer.close()
    finally:
        request_started.connect(close_old_connections)
        request_finished.connect(close_old_connections)
    return [body]


@pytest.fixture
def bob(lab: Lab, people: Personas) -> Iterator[slipway.Client]:
    """Bob's client, without a network in between."""
    transport = httpx.WSGITransport(app=_in_this_transaction)
    with slipway.Client("http://localhost", make_token(people.bob), transport=transport) as client:
        yield client


def test_an_endpoint_lives_its_life_through_the_sdk(lab: Lab, bob: slipway.Client) -> None:
    made = bob.endpoints.create(
        "digits", "digits", project="vision", version=1, tier="small", max_replicas=3
    )
    assert (made.state, made.max_replicas) == ("creating", 3)
    lab.settle()
    assert [
        endpoint.name for endpoint in bob.endpoints.list(project="vision", state="serving")
    ] == ["digits"]
    rollout = bob.endpoints.promote(
        "digits", project="vision", version=2, plan="canary", percents=[5, 100], bake_s=60
    )
    assert (rollout.percents, rollout.revision) == ([5, 100], 2)
    lab.settle()
    weights = {
        revision.number: revision.weight
        for revision in bob.endpoints.get("digits", project="vision").revisions
    }
    assert weights == {1: 95, 2: 5}
    back = bob.endpoints.rollback("digits", project="vision", reason="not good")
    assert {revision.number: revision.weight for revision in back.revisions}[1] == 100
    lab.settle()
    assert bob.endpoints.scale("digits", project="vision", min_replicas=2).min_replicas == 2
    limits = {"max_body_bytes": 1000}
    assert (
        bob.endpoints.change("digits", project="vision", limits=limits).limits.max_body_bytes
        == 1000
    )
    assert bob.endpoints.pause("digits", project="vision", reason="over night").state == "paused"
    assert bob.endpoints.resume("digits", project="vision").state == "serving"
    messages = [event.message for event in bob.endpoints.events("digits", project="vision")]
    assert "Paused by Bob. over night" in messages
    assert len(list(bob.endpoints.rollouts("digits", project="vision"))) == 2
    assert bob.endpoints.replicas("digits", project="vision")
    assert bob.endpoints.traffic("digits", project="vision", minutes=5) == []
    assert bob.endpoints.delete("digits", project="vision").state == "deleting"


def test_keys_are_made_and_revoked_through_the_sdk(lab: Lab, bob: slipway.Client) -> None:
    lab.create()
    made = bob.endpoints.keys.create("digits", "shop", project="vision", rate_per_s=5)
    assert made.rate is not None
    assert (made.rate.per_s, made.rate.burst) == (5.0, 5)
    assert made.key not in repr(made)
    bob.endpoints.keys.revoke("digits", made.id, project="vision")
    (listed,) = bob.endpoints.keys.list("digits", project="vision")
    assert listed.revoked_at is not None


def test_refusals_come_back_with_the_field(lab: Lab, bob: slipway.Client) -> None:
    with pytest.raises(errors.InvalidInput) as refused:
        bob.endpoints.create("digits", "digits", project="vision", version="77")
    assert refused.value.field == "version"
    with pytest.raises(errors.InvalidInput, match="was not sent"):
        bob.endpoints.promote("digits", project="vision", plan="canary", percents=[50, 10])


def test_without_a_gateway_a_prediction_says_so(lab: Lab, bob: slipway.Client) -> None:
    lab.create()
    endpoint = slipway.Endpoint(
        "digits", project="vision", client=bob, retries=slipway.Retries(attempts=1)
    )
    assert endpoint.url == "http://localhost:9/v1/digits"
    with pytest.raises(errors.Unavailable, match="gateway does not respond"):
        endpoint.predict([[1]])


def test_the_sdk_lists_every_replica(lab: Lab, bob: slipway.Client) -> None:
    lab.serving()
    living = Replica.objects.alive().get()
    Replica.objects.bulk_create(
        Replica(endpoint=living.endpoint, revision=living.revision, state="stopped")
        for _ in range(405)
    )
    listed = [replica.id for replica in bob.endpoints.replicas("digits", project="vision")]
    assert len(listed) == len(set(listed)) == 406
    assert living.pk in listed
