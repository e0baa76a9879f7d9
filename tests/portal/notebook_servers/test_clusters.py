"""Notebook servers with a cluster of Ray beside them, and its dashboard."""

import pytest

from portal.accounts.models import Membership
from portal.workloads.tokens import token_of
from tests.personas import Api, Personas, json_of
from tests.portal.endpoints.pages import browser_of
from tests.portal.notebook_servers.servers import SERVERS, Desk
from tests.security.problems import refusal

pytestmark = pytest.mark.postgres


def test_a_node_learns_of_the_framework_at_every_start(desk: Desk) -> None:
    assert desk.launch("plain")["framework"] is None
    server = desk.ready(framework="ray")
    assert desk.look(server)["framework"] == "ray"
    tasks = json_of(desk.machine.call("GET", "desired"))["tasks"]
    assert "ray" in [task["spec"]["framework"] for task in tasks]
    desk.end(server)
    assert desk.api.post(f"{SERVERS}/{server}/start", {}).status_code == 200
    assert desk.workload(server).spec["framework"] == "ray"
    refused = refusal(desk.api.post(SERVERS, {"name": "x", "framework": "parameter_server"}))
    assert (refused.status, refused.field) == (422, "framework")


def test_its_owner_alone_opens_the_dashboard(people: Personas, desk: Desk) -> None:
    plain, server = desk.ready("plain"), desk.launch("ray", framework="ray")["id"]
    path = f"{SERVERS}/{server}/dashboards"
    assert refusal(desk.api.post(path, {})).code == "not_running"
    desk.place(server)
    assert refusal(desk.api.post(f"{SERVERS}/{plain}/dashboards", {})).code == "no_dashboard"
    opened = json_of(desk.api.post(path, {}))
    workload = desk.workload(server)
    assert opened["workload"] == workload.pk
    assert "/.slipway/open?ticket=" in opened["dashboard_url"]
    (target,) = json_of(desk.machine.call("GET", "relay"))["dashboards"]
    assert target["workload_id"] == workload.pk
    for person, status in ((people.alice, 403), (people.vera, 403), (people.charlie, 404)):
        assert refusal(Api.of(person).post(path, {})).status == status
    token = Api(token_of(workload.pk, workload.epoch))
    assert refusal(token.post(path, {})).status == 403
    address = f"/p/vision/notebooks/servers/{server}"
    for person, sees in ((people.bob, True), (people.alice, False), (people.vera, False)):
        page = browser_of(person).get(address)
        assert (b"Ray dashboard" in page.content) is sees
    led = browser_of(people.bob).post(f"{address}/dashboard")
    assert "/.slipway/open?ticket=" in led["Location"]
    Membership.objects.filter(user=people.bob).update(role="viewer")
    assert refusal(desk.api.post(path, {})).status == 403


def test_the_form_offers_it(people: Personas, desk: Desk) -> None:
    browser = browser_of(people.bob)
    address = "/p/vision/notebooks/new"
    assert b"Framework" in browser.get(address).content
    form = {"name": "of-the-form", "tier": "small", "framework": "ray", "idle_minutes": "60"}
    sent = browser.post(address, form | {"days": ["mon"]})
    assert sent.status_code == 302, sent.content
    (server,) = json_of(desk.api.get(f"{SERVERS}?mine=true"))["items"]
    assert (server["name"], server["framework"]) == ("of-the-form", "ray")
