"""Live updates by a real portal process: who hears what, how soon, and who no longer may."""

import asyncio
import contextlib
import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.portal.web.visitors import Visitor
from tests.portals import RunningPortal, portal
from tests.processes import wait_for

__all__ = ["portal"]

CUT_S = 5.0
SOON_S = 3.0


@pytest.fixture
def project(portal: RunningPortal) -> str:
    """A project of Alice in which Bob contributes."""
    with portal.client("alice") as alice:
        slug = str(alice.post("/projects", json={"name": secrets.token_hex(6)}).json()["slug"])
        invite = {"email": "bob@example.org", "role": "contributor"}
        link = alice.post(f"/projects/{slug}/invitations", json=invite).json()["link"]
    with portal.client("bob") as bob:
        token = link.rpartition("/")[2]
        assert bob.post("/invitations/accept", json={"token": token}).is_success
    return slug


# Run inside the portal's installation: a job that runs, and a line of its log.
_MAKE_JOB = """
from portal.accounts.models import Project, User
from tests.portal.web.labs import make_job, print_lines, run_job
from tests.portal.workloads.machines import make_machine, make_tier
make_machine("lab")
make_tier("small")
job = make_job(Project.objects.get(slug={slug!r}), User.objects.get(email="alice@example.org"))
print_lines(run_job(job), "the first line\\n")
print("made", job.pk)
"""
_PRINT = """
from portal.workloads.models import Workload
from tests.portal.web.labs import print_lines
print_lines(Workload.objects.get(pk={pk!r}), "and one more\\n", offset=15)
"""


def _write_secret(portal: RunningPortal, project: str) -> None:
    with portal.client("alice") as alice:
        answer = alice.put(f"/projects/{project}/secrets/KEY", json={"value": secrets.token_hex()})
        assert answer.is_success


def _id_of(portal: RunningPortal, name: str) -> str:
    with portal.client(name) as client:
        return str(client.get("/whoami").json()["user"]["id"])


def test_a_change_rings_in_every_page_of_the_project(portal: RunningPortal, project: str) -> None:
    bob = Visitor.signed_in(portal, "bob")
    with bob.listening(f"/p/{project}/events") as ear:
        assert ear.answer.headers["Content-Type"] == "text/event-stream"
        _write_secret(portal, project)
        assert ear.hears("live:secrets") < SOON_S


@pytest.mark.thorough
def test_what_rang_between_drawing_and_listening_is_not_missed(
    portal: RunningPortal, project: str
) -> None:
    alice = Visitor.signed_in(portal, "alice")
    page = alice.http.get(f"/p/{project}").text
    address = page.split('hx-sse:connect="', 1)[1].split('"', 1)[0]
    _write_secret(portal, project)
    with alice.listening(address) as ear:
        assert ear.hears("live:secrets") < SOON_S


def test_a_page_that_comes_back_hears_what_it_missed(portal: RunningPortal, project: str) -> None:
    alice = Visitor.signed_in(portal, "alice")
    with alice.listening(f"/p/{project}/events") as ear:
        last = ear.last_id
    _write_secret(portal, project)
    with alice.listening(f"/p/{project}/events", last=last) as ear:
        assert ear.hears("live:secrets") < SOON_S


def test_pages_of_other_projects_hear_nothing(portal: RunningPortal, project: str) -> None:
    with portal.client("alice") as client:
        other = client.post("/projects", json={"name": secrets.token_hex(6)}).json()["slug"]
    alice = Visitor.signed_in(portal, "alice")
    with (
        alice.listening(f"/p/{other}/events") as elsewhere,
        alice.listening(f"/p/{project}/events") as here,
    ):
        _write_secret(portal, project)
        here.hears("live:secrets")
        _write_secret(portal, other)
        assert elsewhere.hears("live:secrets") < SOON_S


def _remove_bob(portal: RunningPortal, project: str) -> None:
    with portal.client("alice") as alice:
        assert alice.delete(f"/projects/{project}/members/{_id_of(portal, 'bob')}").is_success


def _archive(portal: RunningPortal, project: str) -> None:
    with portal.client("alice") as alice:
        assert alice.delete(f"/projects/{project}").is_success


@pytest.mark.thorough
@pytest.mark.parametrize("deed", [_remove_bob, _archive])
def test_who_loses_the_project_is_cut_off_within_seconds(
    portal: RunningPortal, project: str, deed: Callable[[RunningPortal, str], None]
) -> None:
    bob = Visitor.signed_in(portal, "bob")
    with bob.listening(f"/p/{project}/events") as ear:
        deed(portal, project)
        ear.hears("live:cut", within_s=CUT_S)
        assert ear.rest() == []
    assert bob.http.get(f"/p/{project}/events").status_code == 404


@pytest.mark.thorough
def test_signing_out_everywhere_cuts_every_open_page(portal: RunningPortal) -> None:
    here, there = (Visitor.signed_in(portal, "charlie") for _ in range(2))
    with there.listening("/events") as ear:
        here.send("/settings/sessions/end", seen_on="/settings/sessions", keep="")
        ear.hears("live:cut", within_s=CUT_S)


@pytest.mark.thorough
def test_signing_out_cuts_the_pages_of_that_browser_alone(portal: RunningPortal) -> None:
    here, there = (Visitor.signed_in(portal, "charlie") for _ in range(2))
    with here.listening("/events") as leaves, there.listening("/events") as stays:
        here.send("/account/logout", seen_on="/settings/profile")
        leaves.hears("live:cut", within_s=CUT_S)
        there.send(
            "/settings/tokens/new",
            name="x",
            preset="custom",
            scopes="projects:read",
            expires_in_days="7",
        )
        stays.hears("live:tokens")


@pytest.mark.thorough
def test_a_suspended_person_is_cut_off_within_seconds(portal: RunningPortal) -> None:
    bob = Visitor.signed_in(portal, "bob")
    address = f"/users/{_id_of(portal, 'bob')}"
    with bob.listening("/events") as ear, portal.client("root") as root:
        heir = _id_of(portal, "alice")
        root.patch(address, json={"is_active": False, "hand_over_to": heir}).raise_for_status()
        try:
            ear.hears("live:cut", within_s=CUT_S)
        finally:
            root.patch(address, json={"is_active": True}).raise_for_status()


def test_one_person_cannot_open_streams_without_end(portal: RunningPortal) -> None:
    root = Visitor.signed_in(portal, "root")

    async def open_many() -> int:
        cookies = dict(root.http.cookies)
        readers = []
        for _ in range(16):
            reader, writer = await asyncio.open_connection(*portal.address)
            cookie = "; ".join(f"{name}={value}" for name, value in cookies.items())
            host = f"localhost:{portal.address[1]}"
            writer.write(
                f"GET /events HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\n\r\n".encode()
            )
            readers.append((reader, writer))
        told_ms = []
        for reader, _ in readers:
            assert b"200 OK" in await reader.readuntil(b"retry: ")
            told_ms.append(int(await reader.readuntil(b"\n")))
        for _, writer in readers:
            writer.close()
        return sum(response_ms < 10_000 for response_ms in told_ms)

    assert asyncio.run(open_many()) == 12


@pytest.mark.skipif("DATABASE_URL" in os.environ, reason="counts open files of SQLite")
def test_open_pages_hold_no_database_connection(portal: RunningPortal) -> None:
    """Threads of requests keep theirs, and five requests one after the other need one thread."""

    def open_files() -> int:
        links = []
        for link in Path(f"/proc/{portal.program.pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                links.append(link.readlink().name)
        return links.count("slipway.sqlite3")

    alice = Visitor.signed_in(portal, "alice")
    before = open_files()
    with (
        alice.listening("/events"),
        alice.listening("/events"),
        alice.listening("/events"),
        alice.listening("/events"),
        alice.listening("/events"),
    ):
        wait_for(lambda: open_files() <= before + 1, "moment with one more or none", within_s=5)


@pytest.mark.thorough
def test_fifty_pages_that_show_a_log_hold_no_threads(portal: RunningPortal, project: str) -> None:
    def threads() -> int:
        return len(list(Path(f"/proc/{portal.program.pid}/task").iterdir()))

    def beside(code: str) -> str:
        done = portal.installation.manage("shell", "--no-imports", "-c", code)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    job = beside(_MAKE_JOB.format(slug=project)).split()[-1]
    with portal.client("alice") as alice, contextlib.ExitStack() as pages:
        for name in ("charlie", "root"):
            invite = {"email": f"{name}@example.org", "role": "viewer"}
            link = alice.post(f"/projects/{project}/invitations", json=invite).json()["link"]
            with portal.client(name) as guest:
                guest.post("/invitations/accept", json={"token": link.rpartition("/")[2]})
        visitors = [
            Visitor.signed_in(portal, person) for person in ("alice", "bob", "charlie", "root")
        ]
        before = threads()
        path = f"/p/{project}/workloads/{job}/log/follow?start=0"
        # All that the four of them may have open: 48 streams.
        ears = [pages.enter_context(visitor.listening(path)) for visitor in visitors * 12]
        assert {ear.answer.status_code for ear in ears} == {200}
        for ear in ears:
            ear.hears("log")
        assert threads() - before < 12
        beside(_PRINT.format(pk=job))
        for ear in ears:
            ear.hears("log")
        began_s = time.monotonic()
        assert alice.get(f"/projects/{project}/jobs/{job}").is_success
        assert time.monotonic() - began_s < SOON_S
