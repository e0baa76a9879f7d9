"""Dashboards of clusters: who opens one, at which host, and what of a request reaches its task."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer
from typing import Any

import httpx
import pytest
from asgiref.sync import async_to_sync
from pytest_django import Settings

from portal.accounts.models import AuditEvent, Membership
from portal.config.asgi import application
from portal.core import clock
from portal.workloads.models import DashboardSession, Lease, Workload
from portal.workloads.services.dashboards import UNATTENDED, end_unattended_dashboards
from portal.workloads.tokens import token_of
from slipway.schemas.relay import DashboardTarget
from tests.personas import Api, Personas, json_of
from tests.portal.endpoints.pages import browser_of
from tests.portal.training.jobs import made_job, place
from tests.portal.workloads.machines import Machine, finish, run
from tests.security.problems import refusal

pytestmark = pytest.mark.postgres


@pytest.fixture
def job(machine: Machine, bob: Api) -> Workload:
    """A job of Bob's with a cluster of Ray, which runs."""
    workload = place(made_job(bob, framework="ray"))
    run(workload)
    return workload


def _path(job: Workload) -> str:
    return f"projects/vision/jobs/{job.pk}/dashboards"


def _opened(api: Api, job: Workload) -> httpx.URL:
    answer = api.post(_path(job), {})
    assert answer.status_code == 201, answer.content
    return httpx.URL(json_of(answer)["dashboard_url"])


def ask(url: httpx.URL | str, method: str = "GET", **headers: str) -> httpx.Response:
    """Send a request to the portal as a browser does. Header names are written with underscores."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}

    async def request() -> httpx.Response:
        transport = httpx.ASGITransport(app=application)  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport) as client:
            return await client.request(method, url, headers=sent)

    # Work for the database then runs in this thread, in the transaction of the test.
    return async_to_sync(request)()


class _Handler(BaseHTTPRequestHandler):
    """Stands for the task: answers with what it got, and tries to set headers of its own."""

    def do_GET(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.requests.append(headers)  # type: ignore[attr-defined]
        body = f"{self.command} {self.path}".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Set-Cookie", "slipway_dashboard=theirs; Path=/")
        self.send_header("Clear-Site-Data", '"*"')
        self.send_header("Strict-Transport-Security", "max-age=1")
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.do_GET()

    def address_string(self) -> str:
        return "relay"

    def log_message(self, *_: Any) -> None:
        pass


class _Task(ThreadingMixIn, UnixStreamServer):
    daemon_threads = True

    def __init__(self, path: Path) -> None:
        self.requests: list[dict[str, str]] = []
        super().__init__(str(path), _Handler)


@contextmanager
def served(settings: Any, job: Workload) -> Iterator[_Task]:
    """Stand behind the door of the relay that leads to a job."""
    lease = Lease.objects.get(workload=job)
    target = DashboardTarget(workload_id=job.pk, epoch=lease.epoch, dashboard_of=lease.task_id)
    folder: Path = settings.SLIPWAY_RELAY_FOLDER()
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / target.door
    task = _Task(path)
    thread = threading.Thread(target=task.serve_forever)
    thread.start()
    try:
        yield task
    finally:
        task.shutdown()
        task.server_close()
        thread.join()
        path.unlink()


def _key(url: httpx.URL) -> str:
    """Use a ticket, and return the cookie."""
    answer = ask(url)
    assert answer.status_code == 303, answer.text
    cookie = answer.headers["set-cookie"]
    for part in ("HttpOnly", "SameSite=Lax", "Path=/"):
        assert part in cookie
    assert "domain" not in cookie.lower()
    return str(cookie.partition(";")[0])


def test_a_node_learns_of_it_and_a_browser_gets_through(
    settings: Settings, machine: Machine, bob: Api, job: Workload
) -> None:
    assert json_of(machine.call("GET", "relay"))["dashboards"] == []
    url = _opened(bob, job)
    assert url.host.endswith(".localhost")
    lease = Lease.objects.get(workload=job)
    key = {"task_id": lease.task_id, "epoch": 1}
    assert json_of(machine.call("GET", "desired"))["dashboards"] == [key]
    (target,) = json_of(machine.call("GET", "relay"))["dashboards"]
    assert target == {"workload_id": job.pk, "epoch": 1, "dashboard_of": lease.task_id}
    cookie = _key(url)
    with served(settings, job) as task:
        answer = ask(
            url.join("/api/x?view=%2Fa"),
            Cookie=f"sessionid=of-the-portal; {cookie}; csrftoken=of-the-portal",
            Authorization="Bearer slp_of_the_portal",
            X_Forwarded_For="10.0.0.1",
            Referer="http://localhost:8000/p/vision",
        )
        assert (answer.status_code, answer.text) == (200, "GET /api/x?view=%2Fa")
        for name in ("set-cookie", "clear-site-data", "strict-transport-security"):
            assert name not in answer.headers
        assert answer.headers["content-security-policy"] == "frame-ancestors 'self'"
        (seen,) = task.requests
        assert seen["host"] == "localhost"
        passed = {"host", "accept", "accept-encoding", "user-agent", "connection"}
        assert set(seen) == passed
        assert "portal" not in str(seen)
    opened, *_ = AuditEvent.objects.filter(verb="workload.open_dashboard")
    assert (opened.after or {})["node"] == lease.node.name


def test_a_ticket_opens_it_once_and_its_key_one_host(
    settings: Settings, bob: Api, job: Workload
) -> None:
    url, other = _opened(bob, job), _opened(bob, job)
    assert ask(url.copy_merge_params({"ticket": "x" * 43})).status_code == 403
    assert ask(url, "POST").status_code == 403
    assert ask(url.copy_with(host=other.host)).status_code == 403
    cookie, other_cookie = _key(url), _key(other)
    assert ask(url).status_code == 403, "a ticket was used twice"
    late = _opened(bob, job)
    label = late.host.partition(".")[0]
    passed = clock.now() - timedelta(seconds=1)
    DashboardSession.objects.filter(label=label).update(ticket_until=passed)
    assert ask(late).status_code == 403, "a ticket was used too late"
    with served(settings, job) as task:
        assert ask(url.join("/")).status_code == 403
        assert ask(url.join("/"), Cookie=other_cookie).status_code == 403
        assert ask(url.join("/"), Cookie="slipway_dashboard=").status_code == 403
        # Another dashboard may have set a cookie for the whole domain.
        tossed = f"slipway_dashboard=theirs; {cookie}"
        assert ask(url.join("/"), Cookie=tossed).status_code == 200
        assert len(task.requests) == 1


def test_pages_of_other_origins_do_not_use_it(settings: Settings, bob: Api, job: Workload) -> None:
    url = _opened(bob, job)
    page, cookie = url.join("/api/jobs/"), _key(url)
    own, other = f"http://{url.netloc.decode()}", f"http://{'0' * 32}.localhost:8000"
    with served(settings, job) as task:
        for headers in (
            {"Origin": other},
            {"Origin": "null"},
            {"Sec_Fetch_Site": "same-site", "Sec_Fetch_Mode": "cors"},
            {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors"},
            {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"},
            {},
        ):
            assert ask(page, "POST", Cookie=cookie, **headers).status_code == 403
        for headers in ({"Origin": other}, {"Sec_Fetch_Site": "same-site"}):
            assert ask(page, Cookie=cookie, **headers).status_code == 403
        assert task.requests == []
        assert ask(page, "POST", Cookie=cookie, Origin=own).status_code == 200
        link = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"}
        assert ask(page, Cookie=cookie, **link).status_code == 200
    for host in ("x", "0" * 32, f"{url.host.partition('.')[0]}.x"):
        assert ask(f"http://{host}.localhost:8000/", Cookie=cookie).status_code in (403, 404)
    # Nothing of the portal is there.
    for path in ("/accounts/login/", "/api/v1/projects", "/healthz", "/static/x.js", "/mlflow/"):
        assert ask(url.join(path)).status_code == 403


def test_only_people_who_may_act_as_the_submitter_open_it(
    people: Personas, bob: Api, job: Workload
) -> None:
    owner, stranger = Api.of(people.alice), Api.of(people.charlie)
    viewer, job_token = Api.of(people.vera), Api(token_of(job.pk, job.epoch))
    assert refusal(owner.post(_path(job), {})).code == "not_the_submitter"
    assert refusal(stranger.post(_path(job), {})).status == 404
    assert refusal(job_token.post(_path(job), {})).status == 403
    assert refusal(viewer.post(_path(job), {})).status == 403
    for person, sees in ((people.bob, True), (people.alice, False), (people.vera, False)):
        page = browser_of(person).get(f"/p/vision/jobs/{job.pk}")
        assert (b"Ray dashboard" in page.content) is sees
    browser = browser_of(people.bob)
    led = browser.post(f"/p/vision/jobs/{job.pk}/dashboard")
    assert led.status_code == 302
    assert ask(led["Location"]).status_code == 303
    assert browser_of(people.charlie).post(f"/p/vision/jobs/{job.pk}/dashboard").status_code == 404


@pytest.mark.parametrize("loss", ["role", "inactive", "token", "sign-out", "password", "end"])
def test_it_closes_when_its_person_may_no_longer(
    settings: Settings, people: Personas, bob: Api, job: Workload, loss: str
) -> None:
    if loss in ("sign-out", "password"):
        browser = browser_of(people.bob)
        url = httpx.URL(browser.post(f"/p/vision/jobs/{job.pk}/dashboard")["Location"])
    else:
        url = _opened(bob, job)
    cookie = _key(url)
    if loss == "role":
        Membership.objects.filter(user=people.bob).update(role="viewer")
    elif loss == "inactive":
        people.bob.is_active = False
        people.bob.save()
    elif loss == "token":
        DashboardSession.objects.get().token.delete()  # type: ignore[union-attr]
    elif loss == "sign-out":
        browser.logout()
    elif loss == "password":
        people.bob.set_password("another one, long enough")
        people.bob.save()
    else:
        finish(job)
    with served(settings, job) as task:
        assert ask(url.join("/"), Cookie=cookie).status_code == 403
        assert task.requests == []


def test_one_that_cannot_be_opened_is_refused_with_a_reason(
    settings: Settings, machine: Machine, bob: Api, job: Workload
) -> None:
    plain = place(made_job(bob))
    run(plain)
    assert refusal(bob.post(_path(plain), {})).code == "no_dashboard"
    settings.SLIPWAY_HAS_RELAY = False
    assert refusal(bob.post(_path(job), {})).code == "no_relay"
    settings.SLIPWAY_HAS_RELAY, settings.SLIPWAY_DASHBOARDS_URL = True, ""
    refused = refusal(bob.post(_path(job), {}))
    assert (refused.code, "SLIPWAY_DASHBOARDS_PUBLIC_URL" in str(refused)) == (
        "no_dashboards",
        True,
    )
    settings.SLIPWAY_DASHBOARDS_URL = "https://dashboards.example.org"
    assert str(_opened(bob, job)).startswith("https://")
    Workload.objects.filter(pk=job.pk).update(spec=job.spec | {"backend": "docker"})
    assert refusal(bob.post(_path(job), {})).code == "no_dashboard"
    Workload.objects.filter(pk=job.pk).update(spec=job.spec)
    finish(job)
    assert refusal(bob.post(_path(job), {})).code == "not_running"


def test_forgotten_ones_end(bob: Api, job: Workload) -> None:
    for _ in range(9):
        _opened(bob, job)
    assert DashboardSession.objects.open().count() == 8
    _key(_opened(bob, job))
    end_unattended_dashboards()
    assert DashboardSession.objects.open().count() == 8
    late = clock.now() - UNATTENDED - timedelta(seconds=1)
    DashboardSession.objects.filter(key_hash="").update(ticket_until=late)
    end_unattended_dashboards()
    (left,) = DashboardSession.objects.open()
    DashboardSession.objects.filter(pk=left.pk).update(seen_at=late)
    end_unattended_dashboards()
    left.refresh_from_db()
    assert left.reason == "unattended"
