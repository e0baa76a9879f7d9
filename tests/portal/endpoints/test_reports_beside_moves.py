"""A gateway reports while traffic is moved, as it does all the time."""

import threading

import pytest
from django.db import connection, connections, transaction

from portal.endpoints.models import Revision
from portal.endpoints.moves import locked
from tests.locks import somebody_waits
from tests.portal.endpoints.serving import GatewayClient, Lab
from tests.processes import wait_for

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "tracking"]),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite lets one write at a time"),
]


def test_a_report_that_comes_while_traffic_moves_is_taken_right_after(
    lab: Lab, gateway: GatewayClient
) -> None:
    lab.serving()
    endpoint_id, revision_id = lab.ids(1)
    ended: list[str] = []

    def report() -> None:
        try:
            gateway.did(endpoint_id, revision_id, answered=5)
            ended.append("taken")
        finally:
            connections.close_all()

    with transaction.atomic():
        assert locked(endpoint_id) is not None
        other = threading.Thread(target=report)
        other.start()
        wait_for(somebody_waits, "a report that waits for the endpoint")
        Revision.objects.filter(pk=revision_id).update(weight=50)
    other.join(30)
    assert ended == ["taken"]
    found = Revision.objects.get(pk=revision_id)
    assert (found.answered, found.weight) == (5, 50)
