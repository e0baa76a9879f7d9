"""Others write while an endpoint is moved: its gateways all the time, its people when they like."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import Client

from portal.endpoints.models import Endpoint, EndpointKey, Revision
from portal.endpoints.services.keys import create_key
from portal.endpoints.transitions import locked, raise_snapshot_version
from slipway.schemas.endpoints import EndpointKeyIn
from tests.locks import Other, somebody_waits
from tests.personas import Personas, json_of
from tests.portal.endpoints.serving import GatewayClient, Lab

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.django_db(transaction=True, databases=["default", "tracking"]),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite lets one write at a time"),
]


def test_a_report_that_comes_while_traffic_moves_is_taken_right_after(
    lab: Lab, gateway: GatewayClient
) -> None:
    lab.serving()
    endpoint_id, revision_id = lab.ids(1)
    other = Other(lambda: gateway.did(endpoint_id, revision_id, answered=5))
    with transaction.atomic():
        assert locked(endpoint_id) is not None
        other.start()
        assert somebody_waits()
        Revision.objects.filter(pk=revision_id).update(weight=50)
    other.end()
    revision = Revision.objects.get(pk=revision_id)
    assert (revision.answered, revision.weight) == (5, 50)


def test_a_key_that_is_made_while_traffic_moves_is_made(lab: Lab, people: Personas) -> None:
    lab.serving()
    endpoint_id, _ = lab.ids(1)
    own = Endpoint.objects.get(pk=endpoint_id)
    spec = EndpointKeyIn(name="shop")
    other = Other(lambda: create_key(endpoint=own, by=people.alice, spec=spec))
    with transaction.atomic():
        endpoint = locked(endpoint_id)
        assert endpoint is not None
        other.start()
        raise_snapshot_version(endpoint)
    made = other.end()
    assert EndpointKey.objects.filter(endpoint=endpoint_id, pk=made.key.pk).exists()


def ended_by_a_deadlock(endpoint_id: str, act: Callable[[], Any]) -> Any:
    """Return what somebody is answered who makes a key and is ended by PostgreSQL."""
    other = Other(act)
    with transaction.atomic(), connection.cursor() as cursor:
        # Forbid others even to name the endpoint, and wait longer than they until a deadlock ends.
        cursor.execute("SET LOCAL deadlock_timeout = '60s'")
        endpoint = Endpoint.objects.select_for_update().get(pk=endpoint_id)
        other.start()
        raise_snapshot_version(endpoint)
    return other.end()


def test_what_the_database_cannot_do_at_this_moment_may_be_asked_again(lab: Lab) -> None:
    lab.serving()
    endpoint_id, _ = lab.ids(1)
    keys = "projects/vision/endpoints/digits/keys"
    busy = ended_by_a_deadlock(
        endpoint_id, lambda: lab.api.post(keys, {"name": "shop"}, key="shop-1")
    )
    made = lab.api.post(keys, {"name": "shop"}, key="shop-1")
    assert (busy.status_code, busy.headers["Retry-After"]) == (503, "1"), busy.content
    assert json_of(busy)["code"] == "database_busy"
    assert made.status_code == 201, made.content
    assert EndpointKey.objects.filter(endpoint=endpoint_id, name="shop").count() == 1


@pytest.mark.parametrize("asks", [{}, {"HX-Request": "true"}], ids=["page", "part of a page"])
def test_a_page_says_what_the_database_cannot_do_at_this_moment(
    lab: Lab, people: Personas, asks: dict[str, str]
) -> None:
    lab.serving()
    endpoint_id, _ = lab.ids(1)
    client = Client(raise_request_exception=False)
    client.force_login(people.alice)
    keys, form = "/p/vision/endpoints/digits/keys/new", {"name": "shop", "scope": "predict"}
    busy = ended_by_a_deadlock(endpoint_id, lambda: client.post(keys, form, headers=asks))
    assert (busy.status_code, busy.headers["Retry-After"]) == (503, "1"), busy.content
    message = busy.headers["HX-Trigger"] if asks else busy.content.decode()
    assert "Try again in a moment." in message
