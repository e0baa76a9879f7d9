"""A job runs in the Python that it asks for, on a node that has reported it."""

import secrets
import sys
from collections.abc import Callable

import pytest

from tests.jobs import Jobs
from tests.portals import RunningPortal

pytestmark = pytest.mark.integration
USUAL = f"{sys.version_info.major}.{sys.version_info.minor}"
SCRIPT = "import sys; print('runs in %d.%d' % sys.version_info[:2])"


@pytest.mark.thorough
def test_a_job_runs_in_the_python_that_it_asks_for(
    whole_slipway: Callable[[], RunningPortal],
) -> None:
    slug = f"pythons-{secrets.token_hex(3)}"
    with whole_slipway().client("root") as client:
        client.post("/projects", json={"name": slug}).raise_for_status()
        nodes = client.get("/nodes").raise_for_status().json()["items"]
        pythons = {version for node in nodes for version in node["pythons"]}
        assert USUAL in pythons
        other = max(pythons - {USUAL}, key=lambda it: int(it.partition(".")[2]), default="")
        if not other:
            pytest.skip("this machine has no other Python than the one that the tests run in")
        jobs = Jobs(client, project=slug)
        job = jobs.submit(SCRIPT, python=other)
        assert jobs.look(job)["python"] == other
        assert jobs.end_of(job, within_s=240)["state"] == "succeeded", jobs.look(job)
        assert f"runs in {other}\n" in jobs.whole_log(job)
        request = {"script": "train.py", "snapshot": "0" * 64, "python": "3.99"}
        refusal = client.post(f"/projects/{slug}/jobs/quote", json=request)
        assert refusal.status_code == 422
        assert f"nodes have {USUAL}" in refusal.json()["detail"]
