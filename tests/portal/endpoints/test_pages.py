"""The pages of endpoints: the list, creating, promoting, going back, keys, trying, deleting."""

from datetime import timedelta

import pytest
from django.test import Client
from pytest_django import Settings

from portal.accounts.models import AuditEvent
from portal.endpoints.models import Endpoint, EndpointKey, TrafficHour
from portal.endpoints.tasks import delete_expired_rows
from tests.personas import Personas, json_of
from tests.portal.endpoints.pages import ALL, ONE, browser_of, send, text_of
from tests.portal.endpoints.serving import GatewayClient, Judge, Lab
from tests.slipway.servers import answer_json, serve

pytestmark = pytest.mark.django_db(databases=["default", "tracking"])


@pytest.fixture
def bob(people: Personas) -> Client:
    """Bob's browser; he contributes to the project vision."""
    return browser_of(people.bob)


@pytest.mark.thorough
def test_home_shows_the_endpoints_of_those_who_see_them(
    lab: Lab, people: Personas, bob: Client
) -> None:
    assert "home-endpoints" not in text_of(bob.get("/"))
    lab.create()
    lab.settle()
    page = text_of(bob.get("/"))
    assert f'href="{ONE}">digits</a>' in page
    assert "Traffic of the last five minutes" in page
    assert "home-endpoints" not in text_of(browser_of(people.charlie).get("/"))


def test_an_endpoint_is_created_from_a_form_that_tells_the_price(lab: Lab, bob: Client) -> None:
    assert "Create your first endpoint" in text_of(bob.get(ALL))
    page = text_of(bob.get("/p/vision/new-endpoint?model=digits&version=1"))
    assert 'value="digits"' in page
    assert "$3.60" in page
    form = {"name": "digits", "model": "digits", "version": "1", "tier": "small"}
    form |= {"min_replicas": "2", "max_replicas": "3"}
    quote = text_of(bob.post("/p/vision/new-endpoint/quote", form))
    assert "$7.20" in quote
    assert "$10.80" in quote
    refused = text_of(bob.post("/p/vision/new-endpoint", form | {"name": "Digits!"}), 422)
    assert 'id="id_name_error"' in refused
    assert 'value="Digits!"' in refused
    fewer = text_of(bob.post("/p/vision/new-endpoint", form | {"max_replicas": "1"}), 422)
    assert 'id="id_max_replicas_error"' in fewer
    unknown = text_of(bob.post("/p/vision/new-endpoint", form | {"model": "nothing"}), 422)
    assert "There is no nothing" in unknown
    assert send(bob, "/p/vision/new-endpoint", **form).headers["Location"] == ONE
    page = text_of(bob.get(ONE))
    assert "starting" in page
    taken = text_of(bob.post("/p/vision/new-endpoint", form), 422)
    assert "The name digits is already in use" in taken
    lab.settle()
    page = text_of(bob.get(ONE))
    assert "Serving." in page
    assert "$7.20" in page
    listed = text_of(bob.get(f"{ALL}?q=dig&state=serving"))
    assert "digits 1" in listed
    assert "2 of 3 replicas ready" in listed
    assert "No matches" in text_of(bob.get(f"{ALL}?state=paused"))


def test_an_endpoint_is_created_without_a_fallback(lab: Lab, bob: Client) -> None:
    page = text_of(bob.get("/p/vision/new-endpoint"))
    assert '<option value="standby" selected>' in page
    assert "x-slipway-fallback" in page
    form = {"name": "digits", "model": "digits", "version": "1", "tier": "small"}
    form |= {"min_replicas": "1", "max_replicas": "1", "fallback": "perhaps"}
    refused = text_of(bob.post("/p/vision/new-endpoint", form), 422)
    assert 'id="id_fallback_error"' in refused
    send(bob, "/p/vision/new-endpoint", **form | {"fallback": "off"})
    assert lab.show()["fallback"] == "off"


def test_a_canary_is_watched_on_the_page_and_taken_back(
    lab: Lab, bob: Client, gateway: GatewayClient
) -> None:
    lab.serving()
    assert "Roll back" not in text_of(bob.get(ONE))
    page = text_of(bob.get(f"{ONE}/promote?model=digits&version=2"))
    assert "digits 1 (revision 1) is serving now" in page
    assert "Hardware is available" in page
    form = {"model": "digits", "version": "2", "plan": "canary", "bake_minutes": "1"}
    form |= {"percents": "10, 50", "shadow_percent": "100"}
    wrong = text_of(bob.post(f"{ONE}/promote", form | {"percents": "50, 10"}), 422)
    assert "greater than the one before" in wrong
    assert "Whole numbers" in text_of(bob.post(f"{ONE}/promote", form | {"percents": "x"}), 422)
    send(bob, f"{ONE}/promote", **form)
    assert "it gets traffic once its golden predictions match" in text_of(bob.get(ONE))
    lab.settle()
    page = text_of(bob.get(ONE))
    assert "Revision 2: 10 % of the traffic is routed to it." in page
    assert 'data-weight="2">10 %' in page
    assert 'data-weight="1">90 %' in page
    assert "revision 2, 10 %</span>" in page
    assert "revision 1, 90 %</span>" in page
    with lab.later(minutes=1.1):
        lab.look_after()
        assert 'data-weight="2">50 %' in text_of(bob.get(ONE))
    again = text_of(bob.post(f"{ONE}/promote", form), 422)
    assert "A rollout is in progress" in again
    assert "Roll back" in text_of(bob.get(ONE))
    send(bob, f"{ONE}/rollback")
    page = text_of(bob.get(ONE))
    assert 'data-weight="1">100 %' in page
    assert "was rolled back" in page
    assert "by Bob" in page
    assert gateway.weights()["1"] == 100
    lab.settle()
    send(bob, f"{ONE}/revisions/2/promote")
    lab.settle()
    assert 'data-weight="2">100 %' in text_of(bob.get(ONE))
    verbs = AuditEvent.objects.filter(target_kind="endpoint").values_list("verb", flat=True)
    assert {"endpoint.promote", "endpoint.rollback"} <= set(verbs)


def test_a_verdict_that_took_a_revision_back_stands_on_the_page(
    lab: Lab, bob: Client, judge: Judge
) -> None:
    lab.serving()
    lab.promote("2", kind="canary", bake_s=60)
    lab.settle()
    judge.says = "Its answers drift."
    lab.look_after()
    page = text_of(bob.get(ONE))
    assert "Revision 2 was rolled back" in page
    assert "Its answers drift." in page


def test_a_key_is_shown_once_and_revoked(lab: Lab, bob: Client) -> None:
    lab.serving()
    form = {"name": "web shop", "scope": "predict", "expires": "30", "rate_per_s": "5"}
    assert "Create key" in text_of(bob.get(f"{ONE}/keys"))
    assert 'id="id_name_error"' in text_of(bob.post(f"{ONE}/keys/new", form | {"name": ""}), 422)
    made = text_of(bob.post(f"{ONE}/keys/new", form))
    key = EndpointKey.objects.shown().get()
    assert (key.rate_per_s, key.burst) == (5.0, 5)
    assert f"{key.prefix}" in made
    assert "Gateways accept it within seconds" in made
    page = text_of(bob.get(f"{ONE}/keys"))
    assert f"<code>{key.prefix}…</code>" in page
    assert made.count(key.prefix) > page.count(key.prefix)
    assert "Revoke the key web shop?" in text_of(bob.get(f"{ONE}/keys/{key.pk}/revoke"))
    send(bob, f"{ONE}/keys/{key.pk}/revoke")
    key.refresh_from_db()
    assert key.revoked_at is not None
    assert bob.get(f"{ONE}/keys/epk_nothing/revoke").status_code == 404


def test_limits_and_rules_change_and_an_empty_field_switches_its_rule_off(
    lab: Lab, bob: Client
) -> None:
    lab.serving(rules={"max_p99_ms": 250}, limits={"max_queue_ms": 77})
    page = bob.get(f"{ONE}/change")
    form = {name: value for name, value in page.context["form"].initial.items() if value}
    assert form["max_p99_ms"] == 250
    form |= {"max_p99_ms": "", "rate_per_s": "9", "max_body_mib": "0.5", "max_replicas": "4"}
    fewer = text_of(bob.post(f"{ONE}/change", form | {"min_replicas": "9"}), 422)
    assert 'id="id_max_replicas_error"' in fewer
    send(bob, f"{ONE}/change", **form)
    shown = lab.show()
    assert (shown["rules"]["max_p99_ms"], shown["max_replicas"]) == (None, 4)
    assert shown["limits"]["rate"] == {"per_s": 9.0, "burst": 9}
    assert (shown["limits"]["max_body_bytes"], shown["limits"]["max_queue_ms"]) == (524_288, 77)
    send(bob, f"{ONE}/change", **form | {"rate_per_s": "", "burst": ""})
    assert lab.show()["limits"]["rate"] is None


@pytest.mark.thorough
def test_it_is_paused_with_a_reason_resumed_and_deleted(lab: Lab, bob: Client) -> None:
    lab.serving()
    assert "Pause digits?" in text_of(bob.get(f"{ONE}/pause"))
    send(bob, f"{ONE}/pause", reason="too dear")
    page = text_of(bob.get(ONE))
    assert "Paused by Bob. too dear" in page
    assert "Resume" in page
    assert "digits 1 once resumed" in page
    assert [(r["state"], r["weight"]) for r in lab.show()["revisions"]] == [("paused", 100)]
    lab.settle()
    send(bob, f"{ONE}/resume")
    lab.settle()
    assert lab.show()["state"] == "serving"
    assert "its keys stop working" in text_of(bob.get(f"{ONE}/delete"))
    assert send(bob, f"{ONE}/delete").headers["Location"] == ALL
    assert "deleting" in text_of(bob.get(ONE))
    lab.settle()
    with lab.later(minutes=1):
        lab.settle()
    assert not Endpoint.objects.present().exists()
    assert bob.get(ONE).status_code == 404


def test_what_it_did_is_charted_and_listed(lab: Lab, bob: Client, gateway: GatewayClient) -> None:
    lab.serving()
    endpoint_id, revision_id = lab.ids(1)
    gateway.did(endpoint_id, revision_id, answered=90, failed=10, at_ms=4)
    for span, seconds in (("15m", 60), ("24h", 600), ("30d", 4 * 3600)):
        answer = bob.get(f"{ONE}/traffic/points?range={span}").json()
        [point] = answer["points"]
        assert 100 / seconds <= point["rps"] <= 100 / 60
        assert point["failed"] == pytest.approx(point["rps"] / 10)
        assert 3 < point["p99"] <= 5
        assert answer["until"] - answer["since"] >= 15 * 60_000
        assert answer["replicas"][-1][1] == 1
    page = text_of(bob.get(f"{ONE}/traffic?range=7d"))
    assert "Last 7 days" in page
    assert '<td class="cell-number">10</td>' in page
    listed = text_of(bob.get(ALL))
    assert "0.3" in listed  # a hundred requests in five minutes
    assert '<span class="tier-busy">10</span>' in listed
    replica = lab.replicas(1)[0]
    page = text_of(bob.get(f"{ONE}/replicas/{replica.pk}"))
    assert "Serving: its golden predictions match" in page
    assert bob.get(f"{ONE}/replicas/rpl_nothing").status_code == 404
    with lab.later(hours=1):
        assert "$3.6" in text_of(bob.get(f"{ONE}/replicas/{replica.pk}"))


def test_traffic_of_three_months_is_charted_when_its_minutes_are_gone(
    lab: Lab, people: Personas, gateway: GatewayClient
) -> None:
    lab.serving()
    endpoint_id, revision_id = lab.ids(1)
    gateway.did(endpoint_id, revision_id, answered=90, failed=10, at_ms=4)
    for days in (31, 60):
        with lab.later(days=days):
            delete_expired_rows()
            bob = browser_of(people.bob)
            points = bob.get(f"{ONE}/traffic/points?range=90d").json()["points"]
            assert [point["failed"] / point["rps"] for point in points] == [pytest.approx(0.1)]
            assert 3 < points[0]["p99"] <= 5
            page = text_of(bob.get(f"{ONE}/traffic?range=90d"))
            assert "Last 90 days" in page
            assert '<td class="cell-number">10</td>' in page
            assert bob.get(f"{ONE}/traffic/points?range=30d").json()["points"] == []
    with lab.later(days=402):
        delete_expired_rows()
    assert not TrafficHour.objects.exists()


def test_a_request_is_tried_and_what_is_wrong_is_said(lab: Lab, bob: Client) -> None:
    lab.serving()
    page = text_of(bob.get(f"{ONE}/use"))
    assert "instances" in page  # of the golden prediction
    assert "Authorization: Bearer $SLIPWAY_ENDPOINT_KEY" in page
    # Nothing listens where the gateway of the tests would be.
    tried = text_of(bob.post(f"{ONE}/try", {"request": '{"instances": [[1]]}'}))
    assert "The gateway does not respond" in tried
    for wrong in ("", "{", "[1]", '{"a": "\\ud800"}'):
        assert "form-faults" in text_of(bob.post(f"{ONE}/try", {"request": wrong}), 422)
    assert bob.get(f"{ONE}/openapi").status_code == 409


def test_a_gateway_that_lacks_the_key_of_the_portal_is_not_told_as_a_missing_key(
    lab: Lab, bob: Client, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.serving()
    monkeypatch.setattr("portal.endpoints.adapters.gateway_http.KNOWN_WITHIN_S", 0.2)
    refusal = answer_json({"title": "Unauthorized", "next_step": "Send Bearer KEY."}, 401)
    with serve(lambda _method, _path: refusal) as url:
        settings.SLIPWAY_GATEWAY_URL = url
        tried = text_of(bob.post(f"{ONE}/try", {"request": '{"instances": [[1]]}'}))
    assert "The gateway has not received the key of the portal yet." in tried
    assert "Bearer KEY" not in tried


def test_viewers_look_and_others_find_nothing(lab: Lab, people: Personas) -> None:
    lab.serving()
    vera, charlie = browser_of(people.vera), browser_of(people.charlie)
    page = text_of(vera.get(ONE))
    pages = ("", "/traffic", "/revisions", "/use", "/keys", "/logs", "/settings", "/monitoring")
    page = "".join(text_of(vera.get(f"{ONE}{part}")) for part in pages)
    for words in ("Create key", "Roll back", "Promote a version", "Delete", "Send through"):
        assert words not in page
    assert "SLIPWAY_ENDPOINT_KEY" in page
    assert "New endpoint" not in text_of(vera.get(ALL))
    for verb in ("promote", "pause", "change", "delete", "try", "keys/new"):
        assert vera.get(f"{ONE}/{verb}").status_code == 403
        assert charlie.get(f"{ONE}/{verb}").status_code == 404
    assert vera.post(f"{ONE}/rollback").status_code == 403
    replica = f"/replicas/{lab.replicas(1)[0].pk}"
    for page_of_it in (*pages, "/traffic/points", "/openapi", replica):
        assert charlie.get(f"{ONE}{page_of_it}").status_code == 404


def test_a_rollout_in_an_hour_says_when_its_next_step_comes(lab: Lab, bob: Client) -> None:
    lab.serving()
    lab.promote("2", kind="shadow", bake_s=timedelta(hours=1).total_seconds(), shadow_percent=25)
    lab.settle()
    page = text_of(bob.get(ONE))
    assert "25 % of the predictions are mirrored to it" in page
    assert "Next step" in page


@pytest.mark.thorough
def test_a_replica_that_is_not_ready_says_what_it_waits_for(lab: Lab, bob: Client) -> None:
    def reasons() -> list[str]:
        replicas = json_of(lab.api.get("projects/vision/endpoints/digits/replicas"))
        return [item["reason"] for item in replicas]

    lab.create(min_replicas=17, max_replicas=17)
    lab.look_after()
    waiting, *placed = reasons()
    assert waiting.startswith("Waiting: needs 1 CPU; node lab has 0 CPUs free"), waiting
    assert set(placed) == {"Starting on node lab."}
    assert "Waiting: needs 1 CPU" in text_of(bob.get(ONE))
    lab.start_replicas()
    for replica in lab.replicas(1)[:16]:
        lab.report(replica, "loading")
    assert set(reasons()[1:]) == {
        "Loading the model. It serves traffic once its golden predictions match."
    }


@pytest.mark.thorough
def test_a_promotion_that_would_wait_for_hardware_says_so(lab: Lab, bob: Client) -> None:
    lab.serving(min_replicas=16, max_replicas=16)
    page = text_of(bob.get(f"{ONE}/promote?model=digits&version=2"))
    assert "No node has capacity for small now: the rollout waits until running work ends" in page
    assert "Hardware is available" not in page


def test_an_endpoint_without_a_ready_replica_does_not_look_healthy(lab: Lab, bob: Client) -> None:
    lab.serving()
    assert "no replica ready" not in text_of(bob.get(ONE))
    for replica in lab.replicas(1):
        lab.crash(replica)
    for page in (ONE, ALL):
        assert "no replica ready" in text_of(bob.get(page)), page


def test_the_tab_of_revisions_says_what_each_changed(lab: Lab, bob: Client) -> None:
    lab.serving()
    lab.promote("2", kind="all_at_once")
    lab.settle()
    page = text_of(bob.get(f"{ONE}/revisions"))
    assert "What each revision changed" in page
    assert "digits 1</td>" in page
    assert "digits 2</td>" in page


def test_the_tab_of_logs_shows_the_chosen_replica(lab: Lab, bob: Client) -> None:
    lab.serving()
    replica = lab.replicas(1)[0]
    page = text_of(bob.get(f"{ONE}/logs"))
    assert f"{ONE}/replicas/{replica.pk}" in page
    assert "log-lines" in page
    assert text_of(bob.get(f"{ONE}/logs?replica=rpl_nothing"))
