"""A gateway reaches replicas in pools through their doors, and says why when it does not."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from slipway.schemas.relay import RelayTarget, door_name_of
from slipway.schemas.serving import RevisionRoute
from tests.workers.machines import eventually
from tests.workers.serving import SECRET, Plane, Replica, endpoint, plane

_ROW = [[1, 2, 3, 4]]
_OWN = RelayTarget(workload_id="wkl_own", epoch=1)
_FOREIGN = RelayTarget(workload_id="wkl_foreign", epoch=1)


@pytest.fixture(scope="module")
def dataplane() -> Iterator[Plane]:
    """A gateway beside a folder of doors."""
    with plane() as made:
        (made.folder / "doors").mkdir()
        yield made


@pytest.fixture(scope="module")
def own(dataplane: Plane) -> Replica:
    """A replica that listens where its door is."""
    return dataplane.replica(listen=f"unix:{_door(dataplane, _OWN)}")


def _door(dataplane: Plane, target: RelayTarget) -> Path:
    return dataplane.folder / "doors" / target.door


def _serve(dataplane: Plane, replica: Replica, target: RelayTarget) -> None:
    """Route the endpoint to a replica at the address of a target."""
    route = replica.route.model_copy(update={"address": target.address})
    revision = RevisionRoute(
        id="rev-1", model="linear", model_version="1", weight=100, replicas=[route]
    )
    dataplane.portal.serve(endpoint([revision]))
    dataplane.until_in_force()


def _refusal(dataplane: Plane, text: str) -> None:
    """Wait for a 503 that says why, and for the report of the same."""
    eventually(
        lambda: text in dataplane.predict(_ROW).body.decode(), what=f"an answer with {text!r}"
    )
    answer = dataplane.predict(_ROW)
    assert (answer.status, answer.json()["code"]) == (503, "no_replica")
    assert int(answer.headers["retry-after"]) >= 1

    def reported() -> bool:
        reports = dataplane.portal.reports[-1:]
        links = [link for report in reports for link in report.replicas]
        return any(link.state == "connecting" and text in link.reason for link in links)

    eventually(reported, what="report of the gateway")


def test_predictions_go_through_the_door_and_an_outage_names_its_reason(
    dataplane: Plane, own: Replica
) -> None:
    dataplane.start_gateway("--relay-folder", str(dataplane.folder / "doors"))
    _serve(dataplane, own, _OWN)
    eventually(lambda: dataplane.predict(_ROW).status == 200, what="prediction through the door")

    door = _door(dataplane, _OWN)
    aside = door.with_name("aside")
    door.rename(aside)
    _serve(dataplane, own, _FOREIGN)
    _refusal(dataplane, "The relay has no connection to its node in the pool.")

    # A relay that was killed leaves its sockets behind.
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(_door(dataplane, _FOREIGN)))
    listener.close()
    _refusal(dataplane, "The relay, which leads to its node in the pool, is not running.")

    _door(dataplane, _FOREIGN).unlink()
    aside.rename(door)
    _serve(dataplane, own, _OWN)
    eventually(lambda: dataplane.predict(_ROW).status == 200, what="prediction after the outage")


def test_a_door_of_another_replica_opens_for_nobody_else(dataplane: Plane, own: Replica) -> None:
    stranger = dataplane.replica(
        "rep-2", listen=f"unix:{_door(dataplane, _FOREIGN)}", secret=f"another-{SECRET}"
    )
    _serve(dataplane, own, _FOREIGN)
    eventually(
        lambda: dataplane.predict(_ROW).status == 503, what="no prediction by the other replica"
    )
    assert "does not know the secret" in stranger.process.log.read_text()


def test_a_gateway_without_a_relay_says_so(dataplane: Plane, own: Replica) -> None:
    assert dataplane.gateway is not None
    dataplane.gateway.stop()
    dataplane.start_gateway()
    _serve(dataplane, own, _OWN)
    _refusal(dataplane, "This gateway is not on the machine of the relay.")


@pytest.mark.parametrize(
    "host",
    [
        *("relay.invalid", f"{'a' * 31}.relay.invalid", f"{'A' * 32}.relay.invalid", "127.0.0.1"),
        *(f"{'a' * 32}.relay.invalid.", f"{'a' * 32}.relay.invalid.example.org", "../x", ""),
    ],
)
def test_no_other_name_stands_for_a_door(host: str) -> None:
    assert door_name_of(host) is None
    assert door_name_of(_OWN.address.partition(":")[0]) == _OWN.door
