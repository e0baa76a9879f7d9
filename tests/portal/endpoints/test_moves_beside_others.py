"""Others write while an endpoint is moved: its gateways all the time, its people when they like."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from django.db import OperationalError, connection, connections, transaction

from portal.endpoints.models import Endpoint, EndpointKey, Revision
from portal.endpoints.moves import gateways_see, locked
from portal.endpoints.services.keys import make_key
from slipway.schemas.endpoints import EndpointKeyIn
from tests.locks import somebody_waits
from tests.personas import Personas, json_of
from tests.portal.endpoints.serving import GatewayClient, Lab
from tests.processes import wait_for

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "tracking"]),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite lets one write at a time"),
]


class Other:
    """Somebody who writes at the same time."""

    def __init__(self, act: Callable[[], object]) -> None:
        self.act = act
        self.ended: list[str] = []
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self.act()
            self.ended.append("done")
        except OperationalError as error:  # a deadlock
            self.ended.append(repr(error))
        finally:
            connections.close_all()


@contextmanager
def beside(
    endpoint_id: str,
    act: Callable[[], object],
    *,
    lock: Callable[[str], Endpoint | None] = locked,
) -> Iterator[Endpoint]:
    """Hold the endpoint locked; the block runs when somebody who acts waits, or has ended."""
    other = Other(act)
    with transaction.atomic():
        endpoint = lock(endpoint_id)
        assert endpoint is not None
        other.thread.start()
        wait_for(lambda: other.ended or somebody_waits(), "an end, or somebody who waits")
        yield endpoint
    other.thread.join(30)
    assert other.ended == ["done"]


def test_a_report_that_comes_while_traffic_moves_is_taken_right_after(
    lab: Lab, gateway: GatewayClient
) -> None:
    lab.serving()
    endpoint_id, revision_id = lab.ids(1)
    with beside(endpoint_id, lambda: gateway.did(endpoint_id, revision_id, answered=5)):
        assert somebody_waits()
        Revision.objects.filter(pk=revision_id).update(weight=50)
    found = Revision.objects.get(pk=revision_id)
    assert (found.answered, found.weight) == (5, 50)


def test_a_key_that_is_made_while_traffic_moves_is_made(lab: Lab, people: Personas) -> None:
    lab.serving()
    endpoint_id, _ = lab.ids(1)

    def make() -> None:
        wanted = EndpointKeyIn(name="shop")
        make_key(endpoint=Endpoint.objects.get(pk=endpoint_id), by=people.alice, wanted=wanted)

    with beside(endpoint_id, make) as endpoint:
        gateways_see(endpoint)
    assert EndpointKey.objects.filter(endpoint=endpoint_id, name="shop").exists()


def heavily_locked(endpoint_id: str) -> Endpoint:
    """Forbid others even to name the endpoint, and wait longer than they until a deadlock ends."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL deadlock_timeout = '60s'")
    return Endpoint.objects.select_for_update().get(pk=endpoint_id)


def test_what_the_database_cannot_do_at_this_moment_may_be_asked_again(lab: Lab) -> None:
    lab.serving()
    endpoint_id, _ = lab.ids(1)
    answers = []

    def make() -> None:
        keys = "projects/vision/endpoints/digits/keys"
        answers.append(lab.api.post(keys, {"name": "shop"}, key="shop-1"))

    with beside(endpoint_id, make, lock=heavily_locked) as endpoint:
        gateways_see(endpoint)
    make()
    busy, made = answers
    assert (busy.status_code, busy.headers["Retry-After"]) == (503, "1"), busy.content
    assert json_of(busy)["code"] == "database_busy"
    assert made.status_code == 201, made.content
    assert EndpointKey.objects.filter(endpoint=endpoint_id, name="shop").count() == 1
