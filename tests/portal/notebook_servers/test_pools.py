"""Notebook servers in pools, and what a node may serve through the relay. No engine runs here."""

from datetime import timedelta

import pytest
from pytest_django import Settings

from portal.compute.models import Node, Pool
from portal.compute.services.node_registration import create_allocation_tokens, join_node
from portal.core import clock
from portal.workloads.models import Allocation, Lease
from portal.workloads.scheduling import run_passes
from slipway.schemas.relay import RelayTarget
from tests.personas import Api, Personas, json_of
from tests.portal.notebook_servers.servers import ADDRESS, SERVERS, Desk
from tests.portal.workloads.machines import facts, run
from tests.security.problems import refusal

pytestmark = pytest.mark.postgres
_RELAY = "/api/agent/v1/relay"


@pytest.fixture
def pool(people: Personas) -> Pool:
    """A pool of two local places, for every project."""
    body = {"name": "twin", "engine": "local", "settings": {"places": 2}}
    assert Api.of(people.root).post("pools", body).status_code == 201
    return Pool.objects.get()


def placed(desk: Desk, pool: Pool, server: str) -> Api:
    """Let a node of an allocation join and run a server; answers that node's API."""
    workload = desk.workload(server)
    allocation = Allocation.objects.create(
        workload=workload, pool=pool, epoch=1, state="submitted", handle="1"
    )
    name = f"{allocation.name}-0"
    (secret,) = create_allocation_tokens(
        pool=pool, reserved_for=allocation.reserved_for, names=[name], valid_for=timedelta(days=1)
    )
    joined = join_node(secret=secret, name=name, details=facts())
    Node.objects.filter(pk=joined.node.pk).update(last_seen_at=clock.now())
    run_passes()
    assert Lease.objects.get(workload=workload).node_id == joined.node.pk
    return Api(joined.secret)


def test_a_server_in_a_pool_is_left_alone_by_our_own_nodes(desk: Desk, pool: Pool) -> None:
    server = desk.launch(pool="twin")
    run_passes()
    assert server["pool"] == "twin"
    assert desk.workload(server["id"]).state == "queued"
    assert "pool twin" in desk.look(server["id"])["explanation"]
    quote = json_of(desk.api.post(f"{SERVERS}/quote", {"tier": "small", "pool": "twin"}))
    assert (quote["can_ever_run"], quote["would_wait"]) == (True, True)


def test_the_portal_gives_the_address_of_a_server_in_a_pool(desk: Desk, pool: Pool) -> None:
    server = desk.launch(pool="twin")["id"]
    placed(desk, pool, server)
    run(desk.workload(server))
    assert desk.report(server, address="127.0.0.1:22").status_code == 200
    workload = desk.workload(server)
    target = RelayTarget(workload_id=workload.pk, epoch=workload.epoch)
    (shown,) = desk.hub_servers()["servers"]
    assert shown["address"] == target.address


def test_no_server_reports_the_address_of_one_in_a_pool(desk: Desk) -> None:
    server = desk.launch()["id"]
    desk.place(server)
    target = RelayTarget(workload_id="wkl_other", epoch=1)
    for address in (target.address, target.address.upper(), "a.relay.invalid.:80"):
        assert refusal(desk.report(server, address=address)).field == "address"
    assert desk.report(server, address=ADDRESS).status_code == 200


def test_a_node_serves_its_own_placement_and_nothing_else(desk: Desk, pool: Pool) -> None:
    first, second = (desk.launch(name, pool="twin")["id"] for name in ("one", "two"))
    node, other = placed(desk, pool, first), placed(desk, pool, second)
    outside = desk.launch("three")["id"]
    run_passes()
    for api, server in ((node, first), (other, second)):
        grant = json_of(api.get(_RELAY))
        assert grant["targets"] == [{"workload_id": desk.workload(server).pk, "epoch": 1}]
    own = json_of(desk.machine.call("GET", "relay"))
    assert own["targets"] == [], f"{outside} is on a node that can be dialled"


def test_a_pool_that_may_not_be_used_is_named(desk: Desk, pool: Pool, people: Personas) -> None:
    refused = refusal(desk.api.post(SERVERS, {"name": "desk", "tier": "small", "pool": "none"}))
    assert (refused.field, refused.code) == ("pool", "no_such_pool")
    server = desk.launch(pool="twin")["id"]
    desk.api.post(f"{SERVERS}/{server}/stop", {})
    Api.of(people.root).patch("pools/twin", {"is_open": False})
    closed = refusal(desk.api.post(f"{SERVERS}/{server}/start", {}))
    assert closed.code == "no_such_pool"
    moved = json_of(desk.api.patch(f"{SERVERS}/{server}", {"pool": ""}))
    assert moved["pool"] is None
    assert desk.api.post(f"{SERVERS}/{server}/start", {}).status_code == 200


def test_without_a_relay_no_server_starts_in_a_pool(
    desk: Desk, pool: Pool, settings: Settings
) -> None:
    settings.SLIPWAY_HAS_RELAY = False
    refused = refusal(desk.api.post(SERVERS, {"name": "desk", "tier": "small", "pool": "twin"}))
    assert refused.code == "no_relay"
    quote = json_of(desk.api.post(f"{SERVERS}/quote", {"tier": "small", "pool": "twin"}))
    assert not quote["can_ever_run"]


def test_a_server_in_a_pool_of_kubernetes_waits_for_its_pod(desk: Desk, people: Personas) -> None:
    body = {"name": "k8s", "engine": "kubernetes", "settings": {"image": "slipway/node"}}
    assert Api.of(people.root).post("pools", body).status_code == 201
    assert desk.launch(pool="k8s")["pool"] == "k8s"
