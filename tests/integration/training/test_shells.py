"""`slipway job shell` in a terminal, through the portal, the relay and the agent of a real node."""

import os
import secrets
import signal
from collections.abc import Iterator

import httpx
import pytest

from tests.jobs import Jobs
from tests.portals import RunningPortal, running_slipway
from tests.terminals import Terminal
from tests.workers.node_agent.clusters import dashboard_packages
from tests.workers.node_agent.clusters import project as cluster_files

pytestmark = pytest.mark.integration

_WAITS = """
import pathlib, time
while not pathlib.Path("go-on").exists():
    time.sleep(0.05)
"""


@pytest.fixture(scope="module")
def slipway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPortal]:
    """A Slipway with a node and the relay."""
    folder = tmp_path_factory.mktemp("shells")
    with running_slipway(folder, SLIPWAY_EMBEDDED_RELAY="true") as portal:
        yield portal


@pytest.fixture
def client(slipway: RunningPortal) -> Iterator[httpx.Client]:
    with slipway.client("root") as client:
        yield client


@pytest.fixture
def job(client: httpx.Client) -> Iterator[tuple[str, str]]:
    """A project and a job that runs in it."""
    slug = f"shells-{secrets.token_hex(3)}"
    client.post("/projects", json={"name": slug}).raise_for_status()
    jobs = Jobs(client, project=slug)
    job_id = jobs.submit(_WAITS, keep=[])
    jobs.wait_for(job_id, "running", within_s=180)
    yield slug, job_id
    client.post(f"/projects/{slug}/jobs/{job_id}/cancel").raise_for_status()


def test_a_shell_from_the_command_line(
    slipway: RunningPortal, client: httpx.Client, job: tuple[str, str]
) -> None:
    slug, job_id = job
    terminal = Terminal(slipway, "job", "shell", job_id, "--project", slug)
    terminal.until(r"[$#] ")
    terminal.type("stty size; echo me=$SLIPWAY_WORKLOAD rank=$RANK 'Grüße 🚢'\n")
    terminal.until(f"30 111\r\nme={job_id} rank=0 Grüße 🚢\r\n")
    terminal.resize(40, 99)
    os.kill(terminal.process.pid, signal.SIGWINCH)
    terminal.type("while [ \"$(stty size)\" != '40 99' ]; do sleep 0.1; done; echo re''sized\n")
    terminal.until("resized")
    terminal.type("sleep 1000\n")
    terminal.until("sleep 1000")
    terminal.type("\x03")
    terminal.until(r"\^C")
    terminal.type("echo code=$?; touch from-the-shell; exit 7\n")
    terminal.until("code=130")
    assert terminal.end() == 7
    assert Jobs(client, project=slug).state(job_id) == "running"

    events = client.get("/audit", params={"project": slug, "limit": 20}).json()["items"]
    by_verb = {event["verb"]: event for event in events}
    opened, closed = by_verb["workload.open_shell"], by_verb["workload.close_shell"]
    assert opened["after"]["rank"] == 0
    assert closed["after"] | {"seconds": 0} == {
        "shell": opened["after"]["shell"],
        "rank": 0,
        "reason": "exit",
        "exit_code": 7,
        "seconds": 0,
    }
    assert opened["actor"] == closed["actor"]


def test_a_shell_ends_with_its_job_and_is_refused_to_others(
    slipway: RunningPortal, client: httpx.Client, job: tuple[str, str]
) -> None:
    slug, job_id = job
    shells = f"/projects/{slug}/jobs/{job_id}/shells"
    with slipway.client("alice") as stranger:
        assert stranger.post(shells, json={}).status_code == 404
    refused = client.post(shells, json={"rank": 3})
    assert (refused.status_code, refused.json()["field"]) == (422, "rank")
    terminal = Terminal(slipway, "job", "shell", job_id, "--project", slug)
    terminal.until(r"[$#] ")
    terminal.type("touch go-on; sleep 1000\n")
    terminal.until("The task has ended")
    assert terminal.end() == 1
    Jobs(client, project=slug).end_of(job_id, within_s=120)
    over = client.post(shells, json={})
    assert (over.status_code, over.json()["code"]) == (409, "not_running")


def test_a_dashboard_is_reached_although_no_shell_is_open(
    slipway: RunningPortal, client: httpx.Client
) -> None:
    slug = f"dashboards-{secrets.token_hex(3)}"
    client.post("/projects", json={"name": slug}).raise_for_status()
    jobs = Jobs(client, project=slug)
    packages = cluster_files(_WAITS) | dashboard_packages()
    files = {name.replace("packages/", "src/"): text for name, text in packages.items()}
    files["pyproject.toml"] = '[project]\nname = "job"\nversion = "1"\n'
    del files["train.py"]
    job = jobs.submit(_WAITS, files=files, framework="ray", keep=[])
    jobs.wait_for(job, "running", within_s=180)
    opened = client.post(f"/projects/{slug}/jobs/{job}/dashboards").raise_for_status().json()
    address = httpx.URL(opened["dashboard_url"])
    host = {"Host": f"{address.host}:{address.port}"}
    with httpx.Client(base_url=slipway.url, headers=host, timeout=60) as browser:
        ticket = browser.get(address.raw_path.decode())
        cookie = ticket.headers["set-cookie"].partition(";")[0]
        browser.cookies.clear()
        page = browser.get("/nodes", headers={"Cookie": cookie})
    assert (page.status_code, page.text.startswith("/nodes rank=")) == (200, True), page.text
    client.post(f"/projects/{slug}/jobs/{job}/cancel").raise_for_status()
