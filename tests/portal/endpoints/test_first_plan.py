"""The first revision has none to be compared with: only all at once means anything for it."""

import pytest

from portal.endpoints.models import Endpoint, Revision
from tests.personas import Personas, json_of
from tests.portal.endpoints.pages import ONE, browser_of, send, text_of
from tests.portal.endpoints.serving import Lab


@pytest.mark.parametrize("kind", ["canary", "shadow"])
def test_a_plan_that_compares_is_refused_for_a_new_endpoint(lab: Lab, kind: str) -> None:
    body = {"name": "digits", "model": "digits", "version": "1", "plan": {"kind": kind}}
    refused = lab.api.post("projects/vision/endpoints", body)
    problem = json_of(refused)
    assert (refused.status_code, problem["code"], problem["field"]) == (
        422,
        "nothing_to_compare",
        "plan",
    )
    assert f"No revision is serving yet, so a {kind} has nothing" in problem["detail"]
    assert "all_at_once" in problem["next_step"]
    assert not Endpoint.objects.exists()


def test_all_at_once_is_taken_and_may_bake(lab: Lab) -> None:
    endpoint = lab.serving(plan={"kind": "all_at_once", "bake_s": 60})
    assert endpoint["rollout"]["state"] == "baking"
    assert endpoint["revisions"][0]["weight"] == 100
    with lab.later(minutes=1.1):
        lab.look_after()
        assert lab.show()["rollout"] is None


@pytest.mark.thorough
def test_the_first_replica_answers_while_there_is_no_room_for_others(
    lab: Lab, people: Personas
) -> None:
    plan = {"kind": "all_at_once", "bake_s": 0}
    lab.create(min_replicas=17, max_replicas=17, plan=plan)
    lab.start_replicas()
    lab.report(lab.replicas(1)[5], "ready", address="127.0.0.1:9001")
    lab.look_after()
    shown = lab.show()
    assert (shown["state"], shown["replicas_ready"]) == ("serving", 1)
    assert shown["revisions"][0]["weight"] == 100
    page = text_of(browser_of(people.bob).get(ONE))
    assert "1 of 17 replicas is ready. Waiting: needs 1 CPU; node lab has 0 CPUs free" in page
    for replica in lab.replicas(1)[:16]:
        lab.report(replica, "ready", address="127.0.0.1:9001")
    # What answers is replaced only by as much: the next revision waits for all of its own.
    lab.look_after()
    lab.promote("2", bake_s=0)
    lab.look_after()
    assert lab.show()["rollout"]["state"] == "planned"
    page = text_of(browser_of(people.bob).get(ONE))
    assert "16 of 17 replicas are ready. Waiting: needs 1 CPU" in page


@pytest.mark.thorough
def test_a_next_revision_that_has_no_room_is_said_to_wait_for_it(
    lab: Lab, people: Personas
) -> None:
    full = {"min_replicas": 16, "max_replicas": 16}
    lab.serving(**full, plan={"kind": "all_at_once", "bake_s": 0})
    lab.look_after()
    lab.promote("2", bake_s=0)
    lab.look_after()
    page = text_of(browser_of(people.bob).get(ONE))
    assert "Revision 2 is not serving yet. Waiting: needs 1 CPU" in page


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["canary", "shadow"])
def test_an_endpoint_that_failed_takes_its_next_version_all_at_once(
    lab: Lab, people: Personas, kind: str
) -> None:
    lab.create()
    lab.start_replicas()
    lab.report(lab.replicas(1)[0], "failed", reason="No module named xgboost.")
    lab.look_after()
    assert lab.show()["state"] == "failed"
    problem = lab.promote("2", status=422, kind=kind, bake_s=60)
    assert (problem["code"], problem["field"]) == ("nothing_to_compare", "plan")
    assert lab.show()["state"] == "failed"
    assert Revision.objects.count() == 1
    bob = browser_of(people.bob)
    page = text_of(bob.get(f"{ONE}/promote"))
    assert "No revision is serving yet." in page
    assert "No revision is serving yet, so there is none to share" in page
    assert 'value="canary"' not in page
    form = {"model": "digits", "version": "2", "bake_minutes": "0"}
    refused = text_of(bob.post(f"{ONE}/promote", form | {"plan": kind}), 422)
    assert f"so a {kind} has nothing to share" in refused
    send(bob, f"{ONE}/promote", **form, plan="all_at_once")
    lab.settle()
    assert lab.show()["state"] == "serving"
