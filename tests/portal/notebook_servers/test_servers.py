"""Notebook servers through the REST API: launched, opened, stopped, started again, idle."""

from datetime import timedelta
from typing import Any

import pytest
from pytest_django import DjangoCaptureOnCommitCallbacks

from portal.accounts.models import AuditEvent, Membership
from portal.compute.services.tiers import change_tier
from portal.core import clock
from portal.notebooks.culling import cull_idle_servers
from portal.notebooks.models import Hub, Server
from portal.notebooks.wiring import NOTEBOOK
from portal.notebooks.workload_sync import sync_all
from portal.workloads.models import Workload
from slipway.schemas.notebook_servers import NotebookState, hub_name
from tests.personas import Api, Personas, json_of
from tests.portal.notebook_servers.servers import ADDRESS, SERVERS, Desk
from tests.portal.workloads.machines import Machine, make_tier


@pytest.fixture(autouse=True)
def _news(django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks) -> Any:
    """News of workloads are sent on commit, which a test never does."""
    with django_capture_on_commit_callbacks(execute=True):
        yield


def caught_up(desk: Desk, server: str) -> Any:
    """Catch up with workloads as the periodic task does; answers how the server is shown."""
    sync_all()
    return desk.look(server)


def test_a_server_is_launched_placed_opened_and_stopped(desk: Desk) -> None:
    made = desk.launch(idle_minutes=30, max_hours=8, tags={"team": "vision"})
    server = made["id"]
    assert server.startswith("nbs_")
    assert (made["state"], made["tier"], made["idle_minutes"]) == ("starting", "small", 30)
    assert made["explanation"].startswith("Waiting")
    assert made["nano_usd_per_hour"] == 360_000_000
    workload = desk.place(server)
    assert (workload.kind, workload.max_lifetime_s) == ("notebook", 8 * 3600)
    assert workload.tags == {"team": "vision"}
    desk.report(server)
    opening = desk.look(server)
    assert opening["state"] == "opening"
    assert opening["url"].endswith(f"/user/{Server.objects.get().owner_id}/{hub_name(server)}/lab")
    servers = desk.hub_servers()["servers"]
    assert [item["address"] for item in servers] == [ADDRESS]
    desk.routed(server)
    assert desk.look(server)["state"] == "ready"
    stopping = json_of(desk.api.post(f"{SERVERS}/{server}/stop"))
    assert stopping["state"] == "stopping"
    # It does not start while it stops, and says so instead of taking the wish for nothing.
    refused = desk.api.post(f"{SERVERS}/{server}/start")
    assert (refused.status_code, json_of(refused)["code"]) == (409, "server_stopping")
    desk.end(server, "user")
    ended = caught_up(desk, server)
    assert (ended["state"], ended["url"]) == ("stopped", None)
    assert ended["explanation"] == "Stopped by Bob."
    assert desk.hub_servers()["servers"] == []


def test_a_door_that_stays_shut_says_why_and_what_to_do(desk: Desk) -> None:
    server = desk.launch()["id"]
    desk.place(server)
    desk.report(server)
    opening = desk.look(server)
    assert opening["explanation"] == "JupyterLab is running; the Hub is opening its route."
    assert opening["next_step"] is None
    # Half a minute later no Hub has asked for it.
    Server.objects.update(opening_since=clock.now() - timedelta(seconds=31))
    shut = desk.look(server)
    assert "its route is not open after 31 seconds" in shut["explanation"]
    assert "no Hub has ever connected" in shut["explanation"]
    assert "logs/slipway.log" in shut["next_step"]
    hub_server = desk.hub_servers()["servers"][0]
    assert "is still opening the route" in desk.look(server)["explanation"]
    # The Hub says what is in its way; of an earlier start it says nothing.
    path = f"/api/hub/v1/servers/{server}/trouble"
    note = {"start": hub_server["start"], "why": "the proxy does not respond the Hub"}
    assert desk.hub.post(path, note).status_code == 200
    desk.hub.post(path, {"start": f"{desk.workload(server).pk}.99", "why": "of another start"})
    assert "the proxy does not respond the Hub." in desk.look(server)["explanation"]
    # Then it is gone itself.
    Hub.objects.update(heard_at=clock.now() - timedelta(minutes=3))
    silent = desk.look(server)["explanation"]
    assert "has sent no heartbeat for 3 minutes" in silent
    desk.routed(server)
    ready = desk.look(server)
    assert (ready["state"], ready["next_step"]) == ("ready", None)
    refused = desk.hub.post(path, {"start": hub_server["start"], "why": ""})
    assert (refused.status_code, "why" in str(json_of(refused))) == (422, True)


def test_a_task_is_told_what_the_hub_will_know_it_by(desk: Desk) -> None:
    server = desk.launch()["id"]
    desk.place(server)
    task = json_of(desk.machine.call("GET", "desired"))["tasks"][0]["spec"]
    env = task["env"]
    owner = Server.objects.get().owner_id
    assert task["argv"] == ["slipway-lab"]
    assert task["warm"] == "jupyterlab"
    assert task["persistent_key"].endswith("/workspace")
    assert env["JUPYTERHUB_SERVICE_PREFIX"] == f"/user/{owner}/{hub_name(server)}/"
    assert env["JUPYTERHUB_API_TOKEN"] == desk.hub_servers()["servers"][0]["token"]
    assert env["MLFLOW_EXPERIMENT_NAME"] == "desk"
    assert env["SLIPWAY_PROJECT"] == "vision"


def test_a_server_that_dies_says_why_and_starts_again(desk: Desk) -> None:
    server = desk.ready()
    desk.report(server, open_files=["a.ipynb", "b/c.ipynb"])
    before = desk.hub_servers()["servers"][0]
    desk.end(server, "oom", message="It used 1.1 of 1 GiB.")
    failed = caught_up(desk, server)
    assert failed["state"] == "failed"
    assert "1.1 of 1 GiB" in failed["explanation"]
    assert failed["next_step"]
    again = json_of(desk.api.post(f"{SERVERS}/{server}/start"))
    assert again["state"] == "starting"
    desk.place(server)
    report = json_of(desk.report(server))
    assert report["open_files"] == ["a.ipynb", "b/c.ipynb"]
    now = desk.hub_servers()["servers"][0]
    assert now["start"] != before["start"]
    assert now["token"] != before["token"]
    # What the Hub says of the earlier start is not about this one.
    desk.routed(server, before["start"])
    assert desk.look(server)["state"] == "opening"
    desk.routed(server)
    assert desk.look(server)["state"] == "ready"


def test_the_hub_starts_a_server_for_its_owner(desk: Desk) -> None:
    server = desk.ready()
    desk.api.post(f"{SERVERS}/{server}/stop")
    desk.end(server, "user")
    assert caught_up(desk, server)["state"] == "stopped"
    started = json_of(desk.hub.post(f"/api/hub/v1/servers/{server}/start"))
    assert (started["state"], started["user"]) == ("starting", Server.objects.get().owner_id)
    same = json_of(desk.hub.post(f"/api/hub/v1/servers/{server}/start"))
    assert same["start"] == started["start"]


def test_reports_that_are_repeated_or_late_change_nothing(desk: Desk) -> None:
    server = desk.ready()
    desk.report(server, busy_kernels=1, sequence=50, why="a kernel is busy")
    active_at = Server.objects.get().active_at
    desk.report(server, busy_kernels=0, moved=False, sequence=50)
    desk.report(server, moved=True, sequence=7, address="127.0.0.1:1")
    assert Server.objects.get().active_at == active_at
    assert Server.objects.get().address == ADDRESS
    desk.report(server, attempt=77, sequence=99, address="127.0.0.1:1")
    assert Server.objects.get().address == ADDRESS
    assert desk.look(server)["why_alive"] == "a kernel is busy"


def let_pass(server: str, **span: float) -> None:
    """Let a server have been at rest for a while."""
    servers = Server.objects.filter(pk=server)
    active_at = servers.values_list("active_at", flat=True).get()
    assert active_at is not None
    servers.update(active_at=active_at - timedelta(**span))
    servers.filter(stops_at__isnull=False).update(stops_at=clock.now())


def test_an_idle_server_is_warned_then_stopped(desk: Desk) -> None:
    server = desk.ready(idle_minutes=10)
    let_pass(server, minutes=8)
    cull_idle_servers()
    assert desk.look(server)["stops_at"] is None
    let_pass(server, minutes=1, seconds=30)
    cull_idle_servers()
    warned = json_of(desk.report(server))
    assert warned["stops_at"] is not None
    assert "10 minutes" in warned["why"]
    assert warned["may_keep"] is True
    # Somebody comes back: it lives on.
    assert json_of(desk.report(server, moved=True))["stops_at"] is None
    let_pass(server, minutes=11)
    cull_idle_servers()
    let_pass(server, minutes=1)
    cull_idle_servers()
    stopped = desk.look(server)
    assert stopped["state"] == "stopping"
    assert desk.workload(server).reason == "idle"


def test_a_busy_kernel_keeps_a_server_and_the_page_says_so(desk: Desk) -> None:
    server = desk.ready(idle_minutes=5)
    let_pass(server, minutes=30)
    desk.report(server, busy_kernels=1, why="1 busy kernel: train.ipynb")
    cull_idle_servers()
    alive = desk.look(server)
    assert (alive["state"], alive["stops_at"]) == ("ready", None)
    assert alive["why_alive"] == "1 busy kernel: train.ipynb"


def test_dear_machines_stop_sooner(desk: Desk, people: Personas) -> None:
    server = desk.ready(idle_minutes=60)
    assert desk.look(server)["idle_minutes_in_force"] == 60
    tier = Server.objects.select_related("tier").get().tier
    change_tier(tier=tier, nano_usd_per_hour=4_000_000_000)
    assert desk.look(server)["idle_minutes_in_force"] == 15
    change_tier(tier=tier, nano_usd_per_hour=90_000_000_000)
    assert desk.look(server)["idle_minutes_in_force"] == 5


def test_budgets_warn_a_server_before_they_stop_it(desk: Desk) -> None:
    server = desk.ready()
    at = clock.now() + timedelta(seconds=60)
    why = "Budget of vision is used up."
    NOTEBOOK.budget.save(workload_id=desk.workload(server).pk, stops_at=at, why=why)
    answer = json_of(desk.report(server, moved=True))
    assert answer["why"] == why  # work does not take back what money said
    assert answer["may_keep"] is False


def test_the_end_of_a_lifetime_is_told_ahead(desk: Desk) -> None:
    server = desk.ready(max_hours=2)
    cull_idle_servers()
    assert desk.look(server)["stops_at"] is None
    ends_at = clock.now() + timedelta(minutes=4)
    Workload.objects.filter(pk=desk.workload(server).pk).update(deadline_at=ends_at)
    cull_idle_servers()
    answer = json_of(desk.report(server, moved=True))
    assert (answer["why"], answer["may_keep"]) == ("It reaches its maximum lifetime.", False)
    assert desk.look(server)["stops_at"] == answer["stops_at"]


def test_a_stop_forgets_none_of_the_open_notebooks(desk: Desk) -> None:
    server = desk.ready()
    desk.report(server, open_files=["a.ipynb"])
    desk.api.post(f"{SERVERS}/{server}/stop")
    # It shuts its kernels down, and says so in a last report.
    desk.report(server, open_files=[])
    desk.end(server, "user")
    sync_all()
    desk.api.post(f"{SERVERS}/{server}/start")
    desk.place(server)
    assert json_of(desk.report(server))["open_files"] == ["a.ipynb"]


def test_the_owner_alone_gets_a_key_to_a_server_that_is_ready(desk: Desk, people: Personas) -> None:
    server = desk.ready()
    given = json_of(desk.api.post(f"{SERVERS}/{server}/key"))
    owner = Server.objects.get().owner_id
    assert given["url"].endswith(f"/user/{owner}/{hub_name(server)}/")
    assert given["token"] == desk.hub_servers()["servers"][0]["token"]
    assert AuditEvent.objects.filter(verb="notebook.key", target_id=server).count() == 1
    for other, status in ((people.mia, 403), (people.alice, 403), (people.charlie, 404)):
        assert Api.of(other).post(f"{SERVERS}/{server}/key").status_code == status
    desk.api.post(f"{SERVERS}/{server}/stop")
    refused = desk.api.post(f"{SERVERS}/{server}/key")
    assert refused.status_code == 409
    assert json_of(refused)["next_step"].startswith("Start it")


def test_who_left_the_project_loses_the_server(desk: Desk, people: Personas) -> None:
    server = desk.ready()
    Membership.objects.filter(user=people.bob, project=people.vision).delete()
    cull_idle_servers()
    assert Server.objects.get(pk=server).state == NotebookState.STOPPING


def test_who_may_do_what(desk: Desk, people: Personas) -> None:
    server = desk.ready()
    vera, mia, alice = Api.of(people.vera), Api.of(people.mia), Api.of(people.alice)
    charlie = Api.of(people.charlie)
    seen = json_of(vera.get(f"{SERVERS}/{server}"))
    assert (seen["is_mine"], seen["url"], seen["owner"]) == (False, None, "bob@example.org")
    assert vera.post(f"{SERVERS}/{server}/stop").status_code == 403
    assert vera.post(SERVERS, {"name": "x"}).status_code == 403
    assert charlie.get(f"{SERVERS}/{server}").status_code == 404
    assert charlie.get(SERVERS).status_code == 404
    assert mia.post(f"{SERVERS}/{server}/start").status_code == 403
    assert mia.post(f"{SERVERS}/{server}/stop").status_code == 200
    assert alice.get(f"{SERVERS}/{server}").status_code == 200
    assert Api().get("/api/hub/v1/servers").status_code == 401
    assert desk.api.get("/api/hub/v1/servers").status_code == 401


def test_a_lab_reports_for_itself_alone(desk: Desk) -> None:
    one, two = desk.ready("one"), desk.ready("two")
    workload = desk.workload(one)
    from_one = Api()
    from_one.token = None
    body = {"attempt": workload.epoch, "sequence": 5, "address": ADDRESS}
    assert from_one.post(f"/api/hub/v1/labs/{two}/reports", body).status_code in (401, 404)
    desk.end(one, "user")
    assert desk.report(one).status_code in (401, 404)


def test_refusals_name_the_field_and_the_way_on(desk: Desk) -> None:
    desk.launch("taken")
    for body, field in (
        ({"name": "taken"}, "name"),
        ({"name": "Not a slug"}, "name"),
        ({"tier": "gone", "name": "x"}, "tier"),
        ({"idle_minutes": 1, "name": "x"}, "idle_minutes"),
        ({"requirements": "not a package !", "name": "x"}, "requirements"),
    ):
        refused = desk.api.post(SERVERS, body)
        assert refused.status_code in (400, 409, 422), refused.content
        assert field in str(json_of(refused)), refused.content
    assert Server.objects.count() == 1


def test_a_quote_starts_nothing(desk: Desk) -> None:
    quote = json_of(desk.api.post(f"{SERVERS}/quote", {"tier": "small"}))
    assert (quote["nano_usd_per_hour"], quote["would_wait"]) == (360_000_000, False)
    assert not Server.objects.exists()


def test_a_server_is_deleted_when_it_does_not_run(desk: Desk) -> None:
    server = desk.ready()
    refused = desk.api.delete(f"{SERVERS}/{server}")
    assert refused.status_code == 409
    desk.api.post(f"{SERVERS}/{server}/stop")
    desk.end(server, "user")
    sync_all()
    assert desk.api.delete(f"{SERVERS}/{server}").status_code == 204
    assert desk.api.get(f"{SERVERS}/{server}").status_code == 404
    verbs = set(AuditEvent.objects.values_list("verb", flat=True))
    assert {"notebook.launch", "workload.stop", "notebook.delete"} <= verbs


def test_what_a_server_cost_is_the_sum_of_its_starts(desk: Desk, machine: Machine) -> None:
    server = desk.ready()
    desk.end(server, "user")
    sync_all()
    first = desk.look(server)["cost_nano_usd"]
    desk.api.post(f"{SERVERS}/{server}/start")
    desk.place(server)
    assert desk.look(server)["cost_nano_usd"] >= first
    assert Server.objects.get().runs.count() == 2


def test_hardware_and_longest_time_change_between_two_starts(desk: Desk) -> None:
    make_tier("large", nano_usd_per_hour=720_000_000)
    server = desk.launch(max_hours=2)["id"]
    edit = f"{SERVERS}/{server}"
    for body, field in (({"tier": "large"}, "tier"), ({"max_hours": 5}, "max_hours")):
        refused = desk.api.patch(edit, body)
        assert refused.status_code == 409, refused.content
        problem = json_of(refused)
        assert (problem["code"], field in str(problem)) == ("server_runs", True)
        assert "Stop it first" in str(problem)
    same = desk.api.patch(edit, {"tier": "small", "max_hours": 2, "idle_minutes": 45})
    assert (same.status_code, json_of(same)["idle_minutes"]) == (200, 45)
    assert desk.api.post(f"{edit}/stop").status_code == 200
    unknown = desk.api.patch(edit, {"tier": "nowhere"})
    assert (unknown.status_code, "nowhere" in str(json_of(unknown))) == (422, True)
    changed = json_of(desk.api.patch(edit, {"tier": "large", "max_hours": 5}))
    assert (changed["tier"], changed["max_hours"]) == ("large", 5)
    kept = AuditEvent.objects.filter(verb="notebook.edit", target_id=server).latest("id")
    assert kept.before == {"tier": "small", "max_lifetime_s": 7200}
    assert kept.after == {"tier": "large", "max_lifetime_s": 18_000}
    assert desk.api.post(f"{edit}/start").status_code == 200
    workload = desk.workload(server)
    assert (workload.tier.slug, workload.max_lifetime_s) == ("large", 18_000)
    desk.api.post(f"{edit}/stop")
    assert json_of(desk.api.patch(edit, {"max_hours": 0}))["max_hours"] is None
