"""Endpoints whose replicas run in pools: refusals, addresses, and what gateways report of them."""

from datetime import timedelta
from typing import Any

import pytest
from pytest_django import Settings

from portal.compute.models import Node, Pool
from portal.compute.services.node_registration import create_allocation_tokens, join_node
from portal.core import clock
from portal.endpoints.models import Replica
from portal.workloads.models import Allocation, Workload
from portal.workloads.scheduling import run_passes
from portal.workloads.services.relay import relay_target
from portal.workloads.tokens import token_of
from slipway.schemas.relay import RelayTarget
from tests.personas import Api, Personas, json_of
from tests.portal.endpoints.pages import ONE, browser_of, send, text_of
from tests.portal.endpoints.serving import GatewayClient, Lab
from tests.portal.workloads.machines import facts, finish, run
from tests.security.problems import refusal

pytestmark = [pytest.mark.postgres, pytest.mark.django_db(databases=["default", "tracking"])]
_ENDPOINTS = "projects/vision/endpoints"
_BODY = {"name": "digits", "model": "digits", "version": "1", "tier": "small", "pool": "twin"}
_AWAY = "The relay, which leads to its node in the pool, is not running."


@pytest.fixture
def pool(people: Personas) -> Pool:
    """A pool of two local places, for every project."""
    body = {"name": "twin", "engine": "local", "settings": {"places": 2}}
    assert Api.of(people.root).post("pools", body).status_code == 201
    return Pool.objects.get()


def placed(pool: Pool, replica: Replica) -> Workload:
    """Let a node of an allocation join and run a replica; answers its workload."""
    workload = replica.workload
    assert workload is not None
    allocation = Allocation.objects.create(
        workload=workload, pool=pool, epoch=workload.epoch + 1, state="submitted", handle="1"
    )
    name = f"{allocation.name}-0"
    (secret,) = create_allocation_tokens(
        pool=pool, reserved_for=allocation.reserved_for, names=[name], valid_for=timedelta(days=1)
    )
    joined = join_node(secret=secret, name=name, details=facts())
    Node.objects.filter(pk=joined.node.pk).update(last_seen_at=clock.now())
    run_passes()
    workload.refresh_from_db()
    run(workload)
    return workload


def serving(lab: Lab, pool: Pool) -> Replica:
    """Create an endpoint in the pool, with a ready replica."""
    lab.create(pool="twin")
    lab.look_after()
    (replica,) = lab.replicas(1)
    placed(pool, replica)
    (replica,) = lab.replicas(1)
    assert lab.report(replica, "ready", address="127.0.0.1:22").status_code == 204
    lab.look_after()
    assert lab.show()["state"] == "serving", lab.story()
    (replica,) = lab.replicas(1)
    return replica


def shown_replicas(lab: Lab) -> Any:
    return json_of(lab.api.get(f"{_ENDPOINTS}/digits/replicas"))


def test_a_replica_waits_for_the_engine_of_its_pool(lab: Lab, pool: Pool) -> None:
    assert lab.create(pool="twin")["pool"] == "twin"
    lab.look_after()
    (replica,) = lab.replicas(1)
    assert replica.workload is not None
    assert replica.workload.pool_id == pool.pk
    assert replica.workload.state == "queued", "own nodes leave it alone"
    (shown,) = shown_replicas(lab)
    assert (shown["state"], "pool twin" in shown["reason"]) == ("starting", True)
    Allocation.objects.create(
        workload=replica.workload,
        pool=pool,
        epoch=1,
        state="submitted",
        handle="7",
        detail="QOSMaxJobsPerUserLimit",
    )
    assert "QOSMaxJobsPerUserLimit" in shown_replicas(lab)[0]["reason"]


def test_the_portal_gives_the_address_of_a_replica_in_a_pool(
    lab: Lab, pool: Pool, gateway: GatewayClient
) -> None:
    replica = serving(lab, pool)
    assert replica.workload is not None
    target = relay_target(replica.workload)
    assert target is not None
    (revision,) = gateway.route()["revisions"]
    assert revision["replicas"][0]["address"] == target.address
    orders = GatewayClient(token_of(replica.workload.pk, replica.workload.epoch)).call(
        "GET", f"replicas/{replica.pk}/orders"
    )
    spec = json_of(orders)
    assert (spec["listen"], spec["advertise_host"]) == ("127.0.0.1:0", target.address)


def test_no_replica_reports_the_address_of_another_one(lab: Lab, pool: Pool) -> None:
    lab.create()
    lab.start_replicas()
    (replica,) = lab.replicas(1)
    target = RelayTarget(workload_id="wkl_other", epoch=1)
    others = (target.address, target.address.upper(), "a.relay.invalid.:80")
    for address in (*others, f"unix:/data/relay/{target.door}", "unix:/run/other.sock"):
        refused = refusal(lab.report(replica, "ready", address=address))
        assert refused.field == "address"
    assert lab.report(replica, "ready", address="127.0.0.1:9000").status_code == 204


def test_the_token_of_a_replica_opens_no_other_replica(
    lab: Lab, pool: Pool, people: Personas
) -> None:
    own = serving(lab, pool)
    assert own.workload is not None
    other_body = _BODY | {"name": "letters"}
    assert lab.api.post(_ENDPOINTS, other_body).status_code == 201
    lab.look_after()
    other = Replica.objects.get(endpoint__name="letters")
    client = GatewayClient(token_of(own.workload.pk, own.workload.epoch))
    for path in ("orders", "files/0"):
        assert client.call("GET", f"replicas/{other.pk}/{path}").status_code == 404
    report: dict[str, Any] = {"replica_id": other.pk, "revision_id": other.revision_id}
    report |= {"state": "ready", "address": "127.0.0.1:9000", "sent_unix_ms": 1}
    assert client.call("POST", f"replicas/{other.pk}/reports", report).status_code == 404
    stranger = Api.of(people.charlie)
    assert stranger.get(f"{_ENDPOINTS}/digits").status_code == 404
    assert stranger.get(f"{_ENDPOINTS}/digits/replicas").status_code == 404


def test_a_replica_that_no_gateway_reaches_is_not_ready(
    lab: Lab, pool: Pool, gateway: GatewayClient
) -> None:
    replica = serving(lab, pool)
    link = {"replica_id": replica.pk, "state": "connecting", "reason": _AWAY}
    gateway.report(replicas=[link])
    (shown,) = shown_replicas(lab)
    assert (shown["state"], lab.show()["replicas_ready"]) == ("unreachable", 0)
    assert _AWAY in shown["reason"]
    lab.look_after()
    assert len(shown_replicas(lab)) == 1, "none is started in its place"
    gateway.report(replicas=[link | {"state": "ready", "reason": ""}])
    assert (shown_replicas(lab)[0]["state"], lab.show()["replicas_ready"]) == ("ready", 1)


def test_a_preempted_replica_is_replaced_with_the_reason(lab: Lab, pool: Pool) -> None:
    replica = serving(lab, pool)
    assert replica.workload is not None
    finish(replica.workload, "preempted", message="Slurm preempted it.")
    lab.look_after()
    newest, gone = shown_replicas(lab)
    assert newest["state"] == "starting"
    assert "pool twin" in gone["reason"]
    assert "Slurm preempted it." in gone["reason"]
    assert lab.revision(1)["state"] == "serving"


def test_an_allocation_that_somebody_cancelled_outside_is_no_failure(lab: Lab, pool: Pool) -> None:
    replica = serving(lab, pool)
    assert replica.workload is not None
    finish(replica.workload, "user", message="It was cancelled in Slurm, and not in Slipway.")
    lab.look_after()
    newest, gone = shown_replicas(lab)
    assert (newest["state"], gone["state"]) == ("starting", "failed")
    assert "cancelled in Slurm" in gone["reason"]
    replica.revision.refresh_from_db()
    assert replica.revision.failures == 0


def test_a_pool_that_may_not_be_used_is_named(lab: Lab, pool: Pool, people: Personas) -> None:
    missing = refusal(lab.api.post(_ENDPOINTS, _BODY | {"pool": "none"}))
    assert (missing.field, missing.code) == ("pool", "no_such_pool")
    root = Api.of(people.root)
    assert root.patch("pools/twin", {"projects": ["other"]}).status_code == 200
    limited = refusal(lab.api.post(_ENDPOINTS, _BODY))
    assert (limited.field, limited.code) == ("pool", "no_such_pool")
    assert "twin" not in str(limited.next_step)


def test_without_a_relay_no_endpoint_starts_in_a_pool(
    lab: Lab, pool: Pool, settings: Settings
) -> None:
    settings.SLIPWAY_HAS_RELAY = False
    refused = refusal(lab.api.post(_ENDPOINTS, _BODY))
    assert (refused.status, refused.code) == (409, "no_relay")
    assert "SLIPWAY_EMBEDDED_RELAY" in str(refused.next_step)


def test_a_closed_pool_takes_no_promotion_and_no_resume(
    lab: Lab, pool: Pool, people: Personas
) -> None:
    serving(lab, pool)
    root = Api.of(people.root)
    root.patch("pools/twin", {"is_open": False})
    body = {"model": "digits", "version": "2", "plan": {"bake_s": 0}}
    assert refusal(lab.api.post(f"{_ENDPOINTS}/digits/promote", body)).code == "no_such_pool"
    lab.do("pause")
    assert refusal(lab.api.post(f"{_ENDPOINTS}/digits/resume", {})).code == "no_such_pool"
    root.patch("pools/twin", {"is_open": True})
    lab.do("resume")


def test_a_pool_that_was_limited_meanwhile_gets_no_more_replicas(
    lab: Lab, pool: Pool, people: Personas
) -> None:
    replica = serving(lab, pool)
    assert Api.of(people.root).patch("pools/twin", {"projects": ["other"]}).status_code == 200
    more = {"min_replicas": 2, "max_replicas": 2}
    assert lab.api.patch(f"{_ENDPOINTS}/digits", more).status_code == 200
    lab.look_after()
    assert [row["id"] for row in shown_replicas(lab)] == [replica.pk]
    assert "Pool twin is not for project vision any more." in lab.story()


def test_a_pool_of_an_endpoint_cannot_be_removed(lab: Lab, pool: Pool, people: Personas) -> None:
    lab.create(pool="twin")
    lab.look_after()
    answer = Api.of(people.root).delete("pools/twin")
    assert refusal(answer).code == "pool_in_use"
    assert (
        "Endpoints start their replicas in pool twin: vision/digits." in json_of(answer)["detail"]
    )


def test_the_pages_offer_and_show_the_pool(lab: Lab, pool: Pool, people: Personas) -> None:
    bob = browser_of(people.bob)
    new = "/p/vision/new-endpoint"
    assert "twin · " in text_of(bob.get(new))
    form = _BODY | {"min_replicas": "1", "max_replicas": "1"}
    assert "starts in pool twin" in text_of(bob.post(f"{new}/quote", form))
    unknown = text_of(bob.post(new, form | {"pool": "none"}), 422)
    assert "There is no pool none" in unknown
    assert send(bob, new, **form).headers["Location"] == ONE
    lab.look_after()
    page = text_of(bob.get(ONE))
    assert "twin" in page
    assert "allocates its nodes" in page
