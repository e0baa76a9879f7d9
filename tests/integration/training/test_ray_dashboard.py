"""Ray's dashboard of a job, through portal, relay and agent, with a real Ray."""

import secrets
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.jobs import Jobs
from tests.portals import RunningPortal, running_slipway
from tests.processes import wait_for
from tests.ray_cluster import ray_python

pytestmark = [pytest.mark.integration, pytest.mark.slow]

_WAITS = """
import os, pathlib, time, ray

ray.init()
print(ray.get(ray.remote(lambda: "ran " + str(1 + 1)).remote()), flush=True)
print("head", os.environ["RAY_ADDRESS"], flush=True)
while not pathlib.Path("go-on").exists():
    time.sleep(0.1)
"""
# Code of another project on the same node looks for the dashboard and asks it without its token.
_SEARCH = """
import http.client, pathlib
for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
    address, state = line.split()[1], line.split()[3]
    if state != "0A" or not address.startswith("0100007F"):
        continue
    for path in ("/nodes?view=summary", "/api/jobs/", "/logical/actors"):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", int(address[9:], 16), timeout=20)
            connection.request("GET", path)
            answer = connection.getresponse()
            if b"authentication token" in answer.read(200):
                print("refused", path, answer.status, flush=True)
        except (OSError, http.client.HTTPException):
            break
"""


class Browser:
    """A browser at the host name of one dashboard, which resolves to this machine."""

    def __init__(self, portal: RunningPortal, url: str) -> None:
        address = httpx.URL(url)
        self.host = f"{address.host}:{address.port}"
        self.opening = address.raw_path.decode()
        self._client = httpx.Client(base_url=portal.url, headers={"Host": self.host}, timeout=120)
        self.cookie = ""

    def get(self, path: str, **headers: str) -> httpx.Response:
        """Ask as a page of this host does."""
        self._client.cookies.clear()
        sent = {"Cookie": self.cookie} if self.cookie else {}
        return self._client.get(path, headers=sent | headers)

    def open(self) -> httpx.Response:
        """Use the ticket, and keep the cookie."""
        answer = self.get(self.opening)
        if "set-cookie" in answer.headers:
            self.cookie = answer.headers["set-cookie"].partition(";")[0]
        return answer


@pytest.fixture(scope="module")
def slipway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPortal]:
    """A Slipway whose jobs run in a Python with Ray."""
    python = ray_python()
    folder = tmp_path_factory.mktemp("ray")
    with running_slipway(
        folder, SLIPWAY_EMBEDDED_RELAY="true", SLIPWAY_JOB_PYTHON=str(python)
    ) as portal:
        yield portal


@pytest.fixture
def client(slipway: RunningPortal) -> Iterator[httpx.Client]:
    with slipway.client("root") as client:
        yield client


@pytest.fixture
def job(client: httpx.Client) -> Iterator[tuple[str, str]]:
    """A project and a job with a cluster in it, whose script waits."""
    slug = f"ray-{secrets.token_hex(3)}"
    client.post("/projects", json={"name": slug}).raise_for_status()
    jobs = Jobs(client, project=slug)
    job_id = jobs.submit(_WAITS, keep=[], framework="ray")
    jobs.wait_for(job_id, "running", within_s=300)
    wait_for(lambda: "head" in jobs.log(job_id), "the cluster", within_s=300)
    yield slug, job_id
    client.post(f"/projects/{slug}/jobs/{job_id}/cancel").raise_for_status()
    jobs.end_of(job_id, within_s=120)


def opened(client: httpx.Client, job: tuple[str, str]) -> Any:
    """Open the dashboard, and return the answer."""
    answer = client.post(f"/projects/{job[0]}/jobs/{job[1]}/dashboards")
    assert answer.status_code == 201, answer.text
    return answer.json()


def test_the_dashboard_of_a_job(
    slipway: RunningPortal, client: httpx.Client, job: tuple[str, str]
) -> None:
    browser = Browser(slipway, opened(client, job)["dashboard_url"])
    assert browser.open().status_code == 303
    page = browser.get("/")
    assert page.status_code == 200, page.text
    assert "<title>Ray Dashboard</title>" in page.text
    nodes = browser.get("/nodes?view=summary").json()["data"]["summary"]
    assert [node["raylet"]["state"] for node in nodes] == ["ALIVE"]
    assert browser.get("/api/jobs/").status_code == 200
    assert browser.open().status_code == 403, "a ticket was used twice"
    browser.cookie = ""
    assert browser.get("/").status_code == 403


def test_another_project_on_the_node_gets_no_answer(
    slipway: RunningPortal, client: httpx.Client, job: tuple[str, str]
) -> None:
    browser = Browser(slipway, opened(client, job)["dashboard_url"])
    browser.open()
    assert browser.get("/").status_code == 200
    other = f"other-{secrets.token_hex(3)}"
    client.post("/projects", json={"name": other}).raise_for_status()
    jobs = Jobs(client, project=other)
    search = jobs.submit(_SEARCH, keep=[])
    assert jobs.end_of(search, within_s=120)["state"] == "succeeded"
    log = jobs.whole_log(search)
    for path in ("/nodes?view=summary", "/api/jobs/", "/logical/actors"):
        assert f"refused {path} 401" in log
