"""When a rollout goes back by itself, what it says then, and what chance does not bring."""

from typing import Any

import pytest

from tests.portal.endpoints.serving import GatewayClient, Judge, Lab

CANARY: dict[str, Any] = {"kind": "canary", "bake_s": 60}


def test_errors_of_the_new_revision_give_all_traffic_back(lab: Lab, gateway: GatewayClient) -> None:
    lab.serving()
    lab.promote("2", **CANARY)
    lab.settle()
    endpoint_id, revision_id = lab.ids(2)
    gateway.did(endpoint_id, revision_id, answered=19)
    lab.look_after()
    assert gateway.weights()["2"] == 1
    gateway.did(endpoint_id, revision_id, failed=2)
    lab.look_after()
    assert gateway.weights() == {"1": 100}
    lost = lab.revision(2)
    assert lost["state"] == "failed"
    assert lost["reason"].startswith("2 of 21 predictions failed (9.5 %)")
    assert "Revision 2 was rolled back to revision 1: 2 of 21" in lab.story()


def _canary_beside_a_steady_revision(lab: Lab, gateway: GatewayClient) -> tuple[str, str]:
    """Serve two revisions, of which the first takes 10 ms; returns the endpoint and the second."""
    lab.serving()
    lab.promote("2", **CANARY)
    lab.settle()
    endpoint_id, old = lab.ids(1)
    gateway.did(endpoint_id, old, answered=500, at_ms=10)
    return endpoint_id, lab.ids(2)[1]


@pytest.mark.thorough
def test_a_slower_revision_goes_back_and_rules_can_be_switched_off(
    lab: Lab, gateway: GatewayClient
) -> None:
    endpoint_id, new = _canary_beside_a_steady_revision(lab, gateway)
    gateway.did(endpoint_id, new, answered=150, at_ms=100)
    lab.look_after()
    assert "p99 latency is 100 ms, up from 10 ms" in lab.revision(2)["reason"]
    lab.settle()
    changed = lab.api.patch("projects/vision/endpoints/digits", {"rules": {"is_on": False}})
    assert changed.status_code == 200
    lab.promote("3", **CANARY)
    lab.settle()
    gateway.did(endpoint_id, lab.ids(3)[1], failed=100)
    lab.look_after()
    assert gateway.weights()["3"] == 1


@pytest.mark.thorough
def test_one_pause_of_the_machine_takes_no_revision_back(lab: Lab, gateway: GatewayClient) -> None:
    endpoint_id, new = _canary_beside_a_steady_revision(lab, gateway)
    gateway.did(endpoint_id, new, answered=117, at_ms=10)
    gateway.did(endpoint_id, new, answered=3, at_ms=500)
    lab.look_after()
    assert gateway.weights() == {"1": 99, "2": 1}
    # Two in a hundred of many are no chance any more.
    gateway.did(endpoint_id, new, answered=3880, at_ms=10)
    gateway.did(endpoint_id, new, answered=80, at_ms=500)
    lab.look_after()
    assert "up from 10 ms with the previous revision" in lab.revision(2)["reason"]
    assert gateway.weights() == {"1": 100}


@pytest.mark.thorough
def test_going_back_after_the_other_revision_failed_says_so(
    lab: Lab, gateway: GatewayClient
) -> None:
    lab.serving()
    lab.promote("2", bake_s=0)
    lab.settle()
    lab.do("rollback")
    lab.do("promote", {"revision": 2, "plan": {"bake_s": 60}})
    lab.look_after()
    endpoint_id, revision_id = lab.ids(2)
    gateway.did(endpoint_id, revision_id, failed=50)
    lab.look_after()
    lab.settle()
    assert gateway.weights() == {"1": 100}
    refused = lab.do("rollback", status=409)
    assert refused["code"] == "nothing_before"
    assert "Revision 2 failed: 50 of 50 predictions failed" in refused["detail"]


def test_a_judge_of_quality_has_the_last_word(
    lab: Lab, gateway: GatewayClient, judge: Judge
) -> None:
    lab.serving(rules={"is_on": True})
    lab.promote("2", **CANARY)
    lab.settle()
    judge.says = "The share of class 8 grew from 10 to 60 %."
    lab.look_after()
    assert judge.evidence[-1].previous_id == lab.ids(1)[1]
    assert lab.revision(2)["reason"] == judge.says
    assert gateway.weights() == {"1": 100}


def test_a_failed_golden_prediction_keeps_a_revision_from_all_traffic(
    lab: Lab, gateway: GatewayClient
) -> None:
    lab.serving()
    lab.promote("2")
    lab.start_replicas()
    why = "Golden prediction 1 came back as 3 where 8 was expected."
    assert lab.report(lab.replicas(2)[0], "failed", reason=why).status_code == 204
    lab.look_after()
    assert (lab.revision(2)["state"], lab.revision(2)["reason"]) == ("failed", why)
    assert gateway.weights() == {"1": 100}
    assert f"Revision 2 was rolled back to revision 1: {why}" in lab.story()
    lab.settle()
    lab.promote("3")
