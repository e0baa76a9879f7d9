"""Lives of endpoints: created, promoted, rolled back by people and by themselves, scaled."""

from datetime import timedelta
from typing import Any

import pytest

from portal.accounts.models import AuditEvent
from portal.core import clock
from portal.core.clock import frozen
from portal.endpoints.models import EndpointKey, Replica
from portal.endpoints.ports import ServedModel
from portal.endpoints.replica_spec import spec_of
from portal.workloads.models import Workload
from portal.workloads.scheduling import run_passes
from portal.workloads.tokens import token_of
from tests.personas import Api, Personas, json_of
from tests.portal.endpoints.serving import CONTENT, GatewayClient, Lab, Models
from tests.portal.workloads.machines import finish, run

CANARY: dict[str, Any] = {"kind": "canary", "bake_s": 60}


def test_an_endpoint_serves_once_its_golden_predictions_came_back(
    lab: Lab, gateway: GatewayClient
) -> None:
    made = lab.create()
    assert (made["state"], made["url"]) == ("creating", "http://localhost:9/v1/digits")
    assert gateway.route()["state"] == "paused"
    lab.start_replicas()
    replica = lab.replicas(1)[0]
    assert lab.report(replica, "loading").status_code == 204
    lab.look_after()
    assert lab.show()["state"] == "creating"
    assert gateway.route()["revisions"] == []
    lab.report(replica, "ready", address="127.0.0.1:9001", load_ms=12.5)
    lab.look_after()
    shown = lab.show()
    assert (shown["state"], shown["replicas_ready"]) == ("serving", 1)
    assert shown["nano_usd_per_hour"] == 3_600_000_000
    assert shown["revisions"][0]["weight"] == 100
    route = gateway.route()
    assert route["state"] == "serving"
    assert route["revisions"][0]["replicas"][0]["address"] == "127.0.0.1:9001"
    assert len(route["revisions"][0]["replicas"][0]["secret"]) >= 16
    workload = Workload.objects.get()
    assert (workload.kind, workload.spec["argv"][-1]) == ("replica", "slipway-model-server")
    assert lab.story().splitlines()[-1] == "Created by Bob."


def test_a_replica_gets_its_orders_and_its_model_with_its_own_token(
    lab: Lab, gateway: GatewayClient
) -> None:
    lab.create()
    lab.start_replicas()
    replica = lab.replicas(1)[0]
    spec = spec_of(replica, "127.0.0.1", "slw_token")
    assert (spec.endpoint, spec.listen, spec.model_version) == ("digits", "127.0.0.1:0", "1")
    assert spec.golden[0].predictions == [1]
    assert spec.files[0].url is not None
    assert spec.files[0].url.endswith(f"/api/gateway/v1/replicas/{replica.pk}/files/0")
    lab.report(replica, "ready", address="127.0.0.1:9001")
    assert gateway.route()["revisions"] == [] or spec.secret not in str(lab.show())
    elsewhere = spec_of(replica, "10.0.0.7", "slw_token")
    assert (elsewhere.listen, elsewhere.advertise_host) == ("0.0.0.0:0", "10.0.0.7")
    assert ServedModel.model_validate(replica.revision.served).files[0].path == "model.pkl"


def test_a_canary_moves_traffic_step_by_step(lab: Lab, gateway: GatewayClient) -> None:
    lab.serving()
    started = lab.promote("2", **CANARY)
    assert (started["percents"], started["state"]) == ([1, 10, 50, 100], "planned")
    assert gateway.weights() == {"1": 100}
    lab.settle()
    assert gateway.weights() == {"1": 99, "2": 1}
    refused = lab.promote("3", status=409)
    assert refused["code"] == "rollout_under_way"
    for minutes, weights in ((1.1, {"1": 90, "2": 10}), (2.2, {"1": 50, "2": 50})):
        with lab.later(minutes=minutes):
            lab.look_after()
            assert gateway.weights() == weights
    with lab.later(minutes=3.3):
        lab.look_after()
        assert gateway.weights() == {"1": 0, "2": 100}
        assert lab.show()["rollout"]["state"] == "baking"
    with lab.later(minutes=4.4):
        lab.look_after()
        shown = lab.show()
        assert shown["rollout"] is None
        assert [revision["state"] for revision in shown["revisions"]] == ["serving", "standby"]
    with lab.later(minutes=30):
        lab.look_after()
        assert lab.revision(1)["state"] == "retired"
        assert gateway.weights() == {"2": 100}


@pytest.mark.thorough
def test_a_first_revision_that_fails_leaves_an_endpoint_that_can_be_mended(lab: Lab) -> None:
    lab.create()
    lab.start_replicas()
    lab.report(lab.replicas(1)[0], "failed", reason="No module named xgboost.")
    lab.look_after()
    assert (lab.show()["state"], lab.show()["reason"]) == ("failed", "No module named xgboost.")
    lab.promote("2")
    lab.settle()
    assert lab.show()["state"] == "serving"


@pytest.mark.thorough
def test_rolling_back_to_a_warm_revision_takes_one_snapshot(
    lab: Lab, gateway: GatewayClient
) -> None:
    lab.serving()
    lab.promote("2", bake_s=0)
    lab.settle()
    assert gateway.weights() == {"1": 0, "2": 100}
    before = gateway.snapshot()["version"]
    back = lab.do("rollback", {"reason": "customers complain"})
    assert back["rollout"] is None
    route = gateway.route()
    assert {revision["model_version"]: revision["weight"] for revision in route["revisions"]} == {
        "1": 100,
        "2": 0,
    }
    assert all(revision["replicas"] for revision in route["revisions"])
    assert gateway.snapshot()["version"] > before
    assert "From revision 2 back to revision 1: by Bob: customers complain" in lab.story()
    again = lab.do("rollback")
    assert [revision["weight"] for revision in again["revisions"]] == [100, 0]


@pytest.mark.thorough
def test_going_back_to_a_cold_revision_starts_it_again(lab: Lab, gateway: GatewayClient) -> None:
    lab.serving()
    assert lab.do("rollback", status=409)["code"] == "nothing_before"
    lab.promote("2", bake_s=0)
    lab.settle()
    with lab.later(minutes=20):
        lab.settle()
        assert lab.revision(1)["state"] == "retired"
        lab.do("rollback")
        assert gateway.weights() == {"2": 100}
        lab.settle()
        assert gateway.weights() == {"1": 100, "2": 0}


@pytest.mark.thorough
def test_a_rollout_under_way_can_be_taken_back_and_tried_again(
    lab: Lab, gateway: GatewayClient
) -> None:
    lab.serving()
    lab.promote("2", **CANARY)
    lab.settle()
    lab.do("rollback")
    lab.look_after()
    assert gateway.weights() == {"1": 100, "2": 0}
    assert lab.revision(2)["state"] == "standby"
    lab.do("promote", {"revision": 2, "plan": {"bake_s": 0}})
    lab.look_after()
    assert gateway.weights() == {"1": 0, "2": 100}


def test_a_shadow_is_compared_and_answers_nobody(lab: Lab, gateway: GatewayClient) -> None:
    lab.serving()
    lab.promote("2", kind="shadow", bake_s=60, shadow_percent=25)
    lab.settle()
    endpoint_id, revision_id = lab.ids(2)
    assert gateway.weights() == {"1": 100, "2": 0}
    assert gateway.route()["shadow"] == {"revision_id": revision_id, "percent": 25}
    gateway.did(endpoint_id, revision_id, mirrored=40, differed=3)
    with lab.later(minutes=1.1):
        lab.look_after()
        assert "3 of 40 mirrored predictions differed" in lab.story()
        assert gateway.route()["shadow"] is None
        assert lab.revision(2)["state"] == "standby"


@pytest.mark.thorough
def test_a_killed_replica_is_replaced_and_a_crash_loop_rolls_back(
    lab: Lab, gateway: GatewayClient
) -> None:
    lab.serving()
    lab.promote("2", bake_s=0)
    lab.settle()
    for times in range(3):
        with lab.later(seconds=100 * times):
            lab.settle()
            lab.crash(lab.replicas(2)[0])
            if times == 0:
                assert lab.replicas(2) == []  # it backs off before it starts another
    assert gateway.weights()["1"] == 100
    assert lab.revision(2)["state"] == "failed"
    assert "3 replicas of revision 2 failed in a row" in lab.story()
    assert "killed by SIGKILL" in lab.story()


def test_a_replica_that_was_started_again_is_found_where_it_is_now(
    lab: Lab, gateway: GatewayClient
) -> None:
    """As after a restart of all of Slipway: its workload waits and runs again between two looks."""
    lab.serving()
    replica = lab.replicas(1)[0]
    assert replica.workload is not None
    finish(replica.workload, "fenced")
    run_passes()
    run(Workload.objects.get(pk=replica.workload.pk))
    lab.look_after()
    lab.report(replica, "loading")
    lab.report(replica, "ready", address="127.0.0.1:9001")
    (revision,) = gateway.route()["revisions"]
    assert [item["address"] for item in revision["replicas"]] == ["127.0.0.1:9001"]
    assert "ready again" in lab.story()


@pytest.mark.thorough
def test_load_brings_replicas_and_calm_takes_them_away(lab: Lab, gateway: GatewayClient) -> None:
    lab.serving(max_replicas=3, target_concurrency=10)
    endpoint_id, revision_id = lab.ids(1)
    gateway.did(endpoint_id, revision_id, answered=10, in_flight=25)
    lab.settle()
    assert lab.show()["replicas_ready"] == 3
    assert "From 1 to 3 replicas: 25 requests are in flight" in lab.story()
    for minutes in (1, 3.5):
        with lab.later(minutes=minutes):
            gateway.did(endpoint_id, revision_id, answered=10, in_flight=1)
            lab.settle()
    assert lab.show()["desired_replicas"] == 2
    assert "From 3 to 2 replicas: For 2 minutes 2 would have been enough" in lab.story()


def test_a_replica_leaves_after_what_it_works_on(lab: Lab, gateway: GatewayClient) -> None:
    lab.serving()
    replica = lab.replicas(1)[0]
    lab.do("pause", {"reason": "over the weekend"})
    lab.look_after()
    route = gateway.route()
    assert (route["state"], route["reason"]) == ("paused", "Paused by Bob. over the weekend")
    assert [revision["replicas"] for revision in route["revisions"]] == [[]]
    with lab.later(seconds=3):
        link = {"replica_id": replica.pk, "state": "draining", "in_flight": 1}
        gateway.report(replicas=[link])
        lab.look_after()
        assert Replica.objects.get(pk=replica.pk).state == "draining"
        gateway.report(replicas=[link | {"in_flight": 0}])
        lab.settle()
        assert Replica.objects.get(pk=replica.pk).state == "stopped"
        assert lab.show()["nano_usd_per_hour"] == 0
        lab.do("resume")
        lab.settle()
        assert lab.show()["replicas_ready"] == 1
        assert gateway.route()["state"] == "serving"


def test_a_deleted_endpoint_is_gone_and_its_name_free(lab: Lab, gateway: GatewayClient) -> None:
    lab.serving()
    gone = lab.api.delete("projects/vision/endpoints/digits")
    assert (gone.status_code, json_of(gone)["state"]) == (202, "deleting")
    assert gateway.route() is None
    lab.look_after()
    with lab.later(seconds=5):
        lab.settle()
        assert lab.api.get("projects/vision/endpoints/digits").status_code == 404
        lab.create()


def test_keys_are_shown_once_and_gateways_know_only_their_digest(
    lab: Lab, gateway: GatewayClient
) -> None:
    lab.serving()
    made = lab.do("keys", {"name": "shop", "rate": {"per_s": 5, "burst": 10}})
    secret = made["key"]
    assert secret.startswith(made["prefix"])
    listed = lab.api.get("projects/vision/endpoints/digits/keys")
    assert secret not in listed.content.decode()
    assert json_of(listed)["items"][0]["name"] == "shop"
    assert secret not in str(gateway.snapshot())
    key = gateway.route()["keys"][0]
    assert (key["sha256"], key["rate"]) == (
        EndpointKey.objects.get().sha256,
        {"per_s": 5.0, "burst": 10},
    )
    before = gateway.snapshot()["version"]
    path = f"projects/vision/endpoints/digits/keys/{made['id']}"
    assert lab.api.delete(path).status_code == 204
    assert lab.api.delete(path).status_code == 204
    assert gateway.route()["keys"] == []
    assert gateway.snapshot()["version"] == before + 1
    verbs = set(
        AuditEvent.objects.filter(target_kind="endpoint_key").values_list("verb", flat=True)
    )
    assert verbs == {"endpoint.key_create", "endpoint.key_revoke"}


def test_reports_count_once_however_often_they_come(lab: Lab, gateway: GatewayClient) -> None:
    lab.serving()
    endpoint_id, revision_id = lab.ids(1)
    gateway.did(endpoint_id, revision_id, answered=90, failed=10, at_ms=4)
    counters = [{"endpoint_id": endpoint_id, "shed": 3, "unauthorized": 2}]
    gateway.report(endpoints=counters)
    gateway.report(endpoints=counters)
    gateway.report(endpoints=counters, sequence=1)
    points = json_of(lab.api.get("projects/vision/endpoints/digits/traffic"))
    assert sum(point["answered"] for point in points) == 90
    assert sum(point["failed"] for point in points) == 10
    assert sum(point["rejected"] for point in points) == 3
    assert sum(point["unauthorized"] for point in points) == 2
    assert 3 < points[0]["p99_ms"] <= 5
    assert lab.revision(1)["answered"] == 90


def test_spend_tells_what_a_thousand_predictions_of_an_endpoint_cost(
    lab: Lab, gateway: GatewayClient
) -> None:
    lab.serving()
    endpoint_id, revision_id = lab.ids(1)
    gateway.did(endpoint_id, revision_id, answered=1500)
    gateway.did(endpoint_id, revision_id, answered=500)
    with frozen(clock.now() + timedelta(hours=2)):
        shown = json_of(lab.api.get("projects/vision/spend?window=7d"))
        before = json_of(lab.api.get("projects/vision/spend?window=2026-01"))
    [group] = shown["groups"]
    assert (group["noun"], group["name"], group["work"]) == ("endpoint", "digits", "predictions")
    assert group["nano_usd"] == shown["nano_usd"] >= 2 * 3_600_000_000
    assert group["done"] == 2000
    assert group["nano_usd_per_1000"] == group["nano_usd"] // 2
    assert before["groups"] == []


def test_a_snapshot_is_told_once_and_only_to_gateways(
    lab: Lab, gateway: GatewayClient, people: Personas
) -> None:
    lab.serving()
    first = gateway.call("GET", "snapshot")
    etag = first.headers["ETag"]
    same = gateway.call("GET", "snapshot", **{"If-None-Match": etag})
    assert (same.status_code, same.content) == (304, b"")
    for secret in ("", "slg_" + "a" * 43, lab.api.token or ""):
        assert GatewayClient(secret).call("GET", "snapshot").status_code == 401


def test_what_belongs_to_others_looks_like_nothing(lab: Lab, people: Personas) -> None:
    lab.serving()
    charlie, vera = Api.of(people.charlie), Api.of(people.vera)
    assert charlie.get("projects/vision/endpoints/digits").status_code == 404
    assert charlie.get("projects/other/endpoints/digits").status_code == 404
    assert vera.get("projects/vision/endpoints/digits").status_code == 200
    assert vera.post("projects/vision/endpoints/digits/rollback", {}).status_code == 403
    taken = charlie.post("projects/other/endpoints", {"name": "digits", "model": "digits"})
    assert json_of(taken)["code"] == "endpoint_name_taken"
    replica = lab.replicas(1)[0]
    stranger = GatewayClient("slw_" + "a" * 26 + "_1_" + "b" * 43)
    assert stranger.call("GET", f"replicas/{replica.pk}/files/0").status_code == 401


def test_a_replica_fetches_its_own_model_and_no_other(lab: Lab) -> None:
    lab.serving(min_replicas=2)
    one, other = lab.replicas(1)
    own = GatewayClient(_token(one))
    answer = own.call("GET", f"replicas/{one.pk}/files/0")
    assert b"".join(answer) == CONTENT
    assert own.call("GET", f"replicas/{one.pk}/files/1").status_code == 404
    assert own.call("GET", f"replicas/{other.pk}/files/0").status_code == 404


def test_the_token_of_a_replica_opens_nothing_of_the_api(lab: Lab) -> None:
    """Code of the model can read it in the memory of its own process."""
    lab.serving()
    stolen = Api(_token(lab.replicas(1)[0]))
    for path in ("whoami", "projects", "projects/vision", "projects/vision/models", "tiers"):
        assert stolen.get(path).status_code == 403, path
    assert stolen.post("projects/vision/jobs", {}).status_code == 403


def _token(replica: Replica) -> str:
    assert replica.workload is not None
    return token_of(replica.workload.pk, 1)


def test_a_change_resets_what_is_null_and_leaves_what_is_left_out(
    lab: Lab, gateway: GatewayClient
) -> None:
    rate = {"per_s": 5, "burst": 7}
    limits = {"max_in_flight": 9, "rate": rate}
    lab.serving(limits=limits, rules={"max_p99_ms": 250, "max_error_percent": 1})

    def change(**body: Any) -> Any:
        response = lab.api.patch("projects/vision/endpoints/digits", body)
        assert response.status_code == 200, response.content
        return json_of(response)

    endpoint = change(rules={"max_error_percent": None}, limits={"timeout_s": 3})
    assert endpoint["rules"]["max_error_percent"] is None
    assert endpoint["rules"]["max_p99_ms"] == 250
    assert (endpoint["limits"]["timeout_s"], endpoint["limits"]["max_in_flight"]) == (3, 9)
    assert endpoint["limits"]["rate"] == rate
    assert gateway.route()["limits"]["rate"] == rate
    endpoint = change(limits={"rate": None}, rules={"max_p99_ms": None, "max_latency_factor": None})
    assert endpoint["limits"]["rate"] is None
    assert endpoint["limits"]["max_in_flight"] == 9
    assert gateway.route()["limits"]["rate"] is None
    assert endpoint["rules"] == {
        "is_on": True,
        "max_error_percent": None,
        "max_p99_ms": None,
        "max_latency_factor": None,
    }
    assert change(limits=None, rules=None, min_replicas=None)["rules"] == endpoint["rules"]
    refused = lab.api.patch("projects/vision/endpoints/digits", {"limits": {"timeout_s": None}})
    assert (refused.status_code, json_of(refused)["field"]) == (422, "limits.timeout_s")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"name": "Digits"}, "name"),
        ({"version": "77"}, "version"),
        ({"tier": "huge"}, "tier"),
        ({"min_replicas": 3, "max_replicas": 2}, "max_replicas"),
        ({"limits": {"max_body_bytes": 0}}, "limits.max_body_bytes"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_what_can_never_serve_is_refused_by_name(
    lab: Lab, changes: dict[str, object], field: str
) -> None:
    body = {"name": "digits", "model": "digits", "version": "1"} | changes
    refused = lab.api.post("projects/vision/endpoints", body)
    assert refused.status_code == 422
    assert json_of(refused)["field"] == field
    assert not Replica.objects.exists()


def test_a_ready_replica_says_whether_it_merges_requests(lab: Lab, models: Models) -> None:
    lab.create()
    lab.start_replicas()
    replica = lab.replicas(1)[0]
    assert spec_of(replica, "127.0.0.1", "slw_token").batching.mode is None
    reason = "No golden rows are recorded."
    batching = {"mode": "requests", "verdict": "unproved", "reason": reason}
    lab.report(replica, "ready", address="127.0.0.1:9001", batching=batching)
    assert f"is ready. Batching is off. {reason}" in lab.story()
    assert [(version, report.reason) for version, report in models.batching] == [("1", reason)]
