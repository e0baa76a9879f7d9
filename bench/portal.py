"""Latency of pages and API lists in a large installation.

    .venv/bin/python bench/portal.py [--json] [--rounds 40] [--projects 200]
        [--users 2000] [--events 100000] [--only TEXT]

Starts a real portal on its own database (SQLite, or DATABASE_URL) with 200 projects, 2,000 users
and 100,000 audit events, and requests every page and API list as a user who may see everything. The
peer is our target: a p95 of 100 ms.
"""

import argparse
import json
import re
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "platform"), str(ROOT)]

from bench.needs import require  # noqa: E402  (the path comes first)

require()

from bench.django_for_tests import set_up  # noqa: E402

set_up()

import httpx  # noqa: E402

from tests.personas import PASSWORD  # noqa: E402
from tests.portals import RunningPortal, running_portal  # noqa: E402
from tests.routes import Route, routes  # noqa: E402

BOUND_MS = 100.0
_FILL = """
import json
from datetime import timedelta
from portal.accounts.models import ApiToken, AuditEvent, Membership, Project, Team, User
from portal.accounts.services.secrets import write_secret
from portal.core import clock
root = User.objects.get(email="root@example.org")
people = User.objects.bulk_create(
    User(email=f"person{{n}}@example.org", name=f"Person {{n}}", password="!")
    for n in range({users})
)
team = Team.objects.create(slug="lab", name="Lab")
Membership.objects.create(team=team, user=root, role="owner")
Membership.objects.bulk_create(
    Membership(team=team, user=person, role="contributor") for person in people[:1000]
)
projects = Project.objects.bulk_create(
    Project(slug=f"project-{{n}}", name=f"Project {{n}}", team=team if n % 2 else None)
    for n in range({projects})
)
Membership.objects.bulk_create(
    Membership(project=project, user=root, role="owner") for project in projects
)
Membership.objects.bulk_create(
    Membership(project=projects[1], user=person, role="viewer") for person in people
)
ApiToken.objects.bulk_create(
    ApiToken(user=root, name=f"token {{n}}", prefix="slp_aaaa", token_hash=f"{{n:064d}}",
             scopes=["projects:read"], expires_at=clock.now() + timedelta(days=9))
    for n in range(200)
)
for n in range(50):
    write_secret(project=projects[1], by=root, name=f"SECRET_{{n}}", value="x")
for start in range(0, {events}, 5000):
    AuditEvent.objects.bulk_create(
        AuditEvent(
            actor_id=people[n % {users}].pk, actor=people[n % {users}].email,
            verb="project.change",
            project_id=projects[n % {projects}].pk, project_slug=projects[n % {projects}].slug,
            target_kind="project", target_id=projects[n % {projects}].pk, target_label="x",
            before={{"name": "a"}}, after={{"name": "b"}},
        )
        for n in range(start, min(start + 5000, {events}))
    )
print("created " + json.dumps({{
    "project": projects[1].slug, "team": "lab", "person": people[0].pk, "user_id": people[0].pk,
    "token": "none", "secret": "none",
}}))
"""


def sign_in(portal: RunningPortal) -> httpx.Client:
    """Sign root in through the form, and return the client with the session cookie."""
    browser = httpx.Client(base_url=portal.url, follow_redirects=True, timeout=60)
    page = browser.get("/account/login")
    token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page.text)
    assert token, "the sign-in form has no CSRF token"
    form = {
        "login": "root@example.org",
        "password": PASSWORD,
        "csrfmiddlewaretoken": token.group(1),
    }
    response = browser.post("/account/login", data=form, headers={"Referer": str(page.url)})
    assert "slipway_session" in browser.cookies, f"sign-in failed: {response.status_code}"
    return browser


def request_path(route: Route, values: dict[str, str]) -> str | None:
    """Return the path to request, or None for a stream, an export, or a route without GET."""
    unknown = set(route.parameters) - set(values)
    streams = route.template.endswith(("/events", "/export", "/content")) or "events" in route.name
    other = route.is_api and "GET" not in route.methods
    return None if unknown or streams or other else route.path(**values)


def measure(browser: httpx.Client, path: str, rounds: int) -> list[float] | None:
    """Return the milliseconds of each round, or None if a GET does not return 200."""
    if browser.get(path, follow_redirects=False).status_code != 200:
        return None
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        browser.get(path)
        times.append((time.perf_counter() - started) * 1000)
    return times


def main() -> None:
    """Print a table, and with --json one line of JSON at the end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--rounds", type=int, default=40, help="requests per URL")
    parser.add_argument("--projects", type=int, default=200)
    parser.add_argument("--users", type=int, default=2_000)
    parser.add_argument("--events", type=int, default=100_000, help="events in the audit log")
    parser.add_argument("--only", default="", metavar="TEXT", help="only URLs that contain it")
    arguments = parser.parse_args()
    if arguments.rounds < 2 or arguments.projects < 2:
        parser.error("at least two --rounds and --projects are needed")
    sizes = {name: getattr(arguments, name) for name in ("projects", "users", "events")}
    cases: dict[str, dict[str, float | str]] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        running_portal(Path(folder), command=("portal",)) as portal,
    ):
        done = portal.installation.manage("shell", "-c", _FILL.format(**sizes))
        assert done.returncode == 0, done.stdout + done.stderr
        line = next(text for text in done.stdout.splitlines() if text.startswith("created "))
        values = json.loads(line.removeprefix("created "))
        browser = sign_in(portal)
        print(f"{'URL':48} {'p50 ms':>8} {'p95 ms':>8}")
        for route in sorted(routes(), key=lambda route: route.template):
            path = request_path(route, values) if arguments.only in route.template else None
            times = measure(browser, path, arguments.rounds) if path else None
            if times is None:
                continue
            p95 = statistics.quantiles(times, n=20)[-1]
            cases[f"GET {route.template}"] = {
                "ours": round(p95, 1),
                "peer": BOUND_MS,
                "ratio": round(p95 / BOUND_MS, 3),
                "unit": "ms",
            }
            print(f"{route.template:48} {statistics.median(times):8.1f} {p95:8.1f}")
    if arguments.json:
        print(json.dumps({"bench": "portal", "cases": cases}))


if __name__ == "__main__":
    main()
