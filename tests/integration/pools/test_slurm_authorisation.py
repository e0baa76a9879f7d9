"""Rights, limits and secrets of work that runs in a pool of a real Slurm cluster."""

import json
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from slipway.resources.sweeps import sweep_body
from slipway.schemas.training import JobIn
from tests.integration.pools.jobs import (
    JOBS,
    TINY,
    job_body,
    log_of,
    submit,
    wait_for_state,
    workload_of,
)
from tests.notebooks import PASSWORD, Person, running_notebooks
from tests.portals import RunningPortal
from tests.processes import wait_for
from tests.slurm_cluster import SlurmCluster, missing_programs, running_slurm

pytestmark = [
    pytest.mark.integration,
    pytest.mark.thorough,
    pytest.mark.skipif(
        bool(missing_programs()), reason=f"Slurm is not installed: {missing_programs()}"
    ),
]
_WAITS = "import time; time.sleep(600)"
_SECRET = "s3cr3t-" + "x7k2q9"
_READS_SECRET = """
import hashlib, os, time
print("digest", hashlib.sha256(os.environ["TOKEN"].encode()).hexdigest()[:12], flush=True)
time.sleep(600)
"""
_METHODS = ("get", "post", "put", "patch", "delete")
_OPENAPI = Path(__file__).parents[2] / "openapi.json"


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    """A cluster of two nodes."""
    folder = tmp_path_factory.mktemp("slurm") / "cluster"
    with running_slurm(folder, memory_mb=6000) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def slipway(
    tmp_path_factory: pytest.TempPathFactory, slurm: SlurmCluster
) -> Iterator[RunningPortal]:
    """A Slipway with a Hub, and a pool in that cluster. Charlie has a project of his own."""
    folder = tmp_path_factory.mktemp("slipway")
    with running_notebooks(folder, SLIPWAY_EMBEDDED_RELAY="true") as portal:
        settings = {
            "partition": "main",
            "slurm_conf": str(slurm.conf),
            "folder": str(tmp_path_factory.mktemp("nodes")),
            "portal_url": portal.url,
        }
        pool = {"name": "twin", "engine": "slurm", "settings": settings}
        with portal.client("root") as root, portal.client("charlie") as charlie:
            root.post("/tiers", json=TINY).raise_for_status()
            root.post("/pools", json=pool).raise_for_status()
            charlie.post("/projects", json={"name": "Other"}).raise_for_status()
            (node,) = root.get("/nodes").json()["items"]
            root.post(f"/nodes/{node['name']}/cordon", json={}).raise_for_status()
        portal.program.wait_for_text("relay ready", within_s=120)
        yield portal


@pytest.fixture(scope="module")
def bob(slipway: RunningPortal) -> Iterator[httpx.Client]:
    """A contributor of the project."""
    with slipway.client("bob") as client:
        yield client


@pytest.fixture(scope="module")
def alice(slipway: RunningPortal) -> Iterator[httpx.Client]:
    """The owner of the project."""
    with slipway.client("alice") as client:
        yield client


def _verbs(parameter: str) -> list[tuple[str, str]]:
    """Return method and path of everything that can be done with an object of a project."""
    paths: dict[str, Any] = json.loads(_OPENAPI.read_text("utf-8"))["paths"]
    return [
        (method, path.removeprefix("/api/v1"))
        for path, verbs in paths.items()
        for method in verbs
        if f"{{{parameter}}}" in path and "/pipelines/" not in path and method in _METHODS
    ]


def _end(client: httpx.Client, job_id: str) -> None:
    client.post(f"{JOBS}/{job_id}/cancel", json={}).raise_for_status()
    wait_for_state(client, job_id, "stopped")


def test_work_in_slurm_does_not_exist_for_others(
    slipway: RunningPortal, slurm: SlurmCluster, bob: httpx.Client
) -> None:
    job = submit(bob, script=_WAITS)
    trial: dict[str, Any] = job_body(bob, _WAITS)
    sweep_of = partial(sweep_body, JobIn(**trial), name="digits", metric="accuracy:max")
    body = sweep_of(parameters={"lr": "choice(1,2)"}, trials=2, parallel=2, algorithm="grid")
    answer = bob.post("/projects/vision/sweeps", json=body.model_dump(mode="json"))
    sweep = answer.raise_for_status().json()["id"]
    server = Person(slipway, "bob", PASSWORD).launch("pooled", pool="twin")
    wait_for_state(bob, job, "running")
    lines = len(slurm.run("squeue", "--noheader", "--array").splitlines())
    ids = {"job": job, "sweep": sweep, "server": server}
    with slipway.client("charlie") as charlie:
        tried = 0
        for name, object_id in ids.items():
            for method, path in _verbs(name):
                for project in ("vision", "other"):
                    address = path.replace(f"{{{name}}}", object_id)
                    address = address.replace("{project}", project).replace("{shell}", "sh_x")
                    content: dict[str, Any] | None = None if method in ("get", "delete") else {}
                    answer = charlie.request(method, address, json=content)
                    # In a project of his own a body is read before the object is looked for.
                    codes = (404,) if project == "vision" else (404, 422)
                    assert answer.status_code in codes, (method, address, answer.text)
                    assert object_id not in answer.json().get("detail", "").replace(address, "")
                    tried += 1
        assert tried > 40
    assert workload_of(bob, job)["state"] == "running"
    assert len(slurm.run("squeue", "--noheader", "--array").splitlines()) >= lines
    bob.post(f"/projects/vision/sweeps/{sweep}/stop", json={}).raise_for_status()
    bob.post(f"/projects/vision/notebooks/servers/{server}/stop", json={}).raise_for_status()
    _end(bob, job)
    wait_for(lambda: not slurm.run("squeue", "--noheader").strip(), "empty queue", within_s=120)


def test_a_viewer_sees_and_may_not_cancel(
    slipway: RunningPortal, alice: httpx.Client, bob: httpx.Client
) -> None:
    invite = {"email": "charlie@example.org", "role": "viewer"}
    link = alice.post("/projects/vision/invitations", json=invite).raise_for_status().json()["link"]
    job = submit(bob, script=_WAITS)
    wait_for_state(bob, job, "running")
    with slipway.client("charlie") as charlie:
        charlie.post("/invitations/accept", json={"token": link.rpartition("/")[2]})
        assert charlie.get(f"{JOBS}/{job}").status_code == 200
        assert charlie.post(f"{JOBS}/{job}/cancel", json={}).status_code == 403
        assert charlie.post(f"{JOBS}/{job}/clone", json={}).status_code == 403
        assert charlie.post(JOBS, json={"script": "a", "pool": "twin"}).status_code in (403, 422)
    assert workload_of(bob, job)["state"] == "running"
    _end(bob, job)


def test_a_quota_holds_work_back_and_a_budget_ends_it(
    slipway: RunningPortal, slurm: SlurmCluster, bob: httpx.Client
) -> None:
    with slipway.client("root") as root:
        root.put("/quotas/projects/vision", json={"running": 1}).raise_for_status()
        first = submit(bob, script=_WAITS)
        wait_for_state(bob, first, "running")
        second = submit(bob, script=_WAITS)
        wait_for(
            lambda: "may run 1 at once" in workload_of(bob, second)["explanation"],
            "the quota as the reason",
            within_s=60,
        )
        assert len(slurm.run("squeue", "--noheader").splitlines()) == 1
        limit = {"person": "bob@example.org", "limit_nano_usd": 1}
        budget = root.post("/budgets", json=limit).raise_for_status().json()["id"]
        ended = wait_for_state(bob, first, "stopped", "failed", "succeeded")
        assert (ended["state"], ended["reason"]) == ("stopped", "budget"), ended
        wait_for(lambda: not slurm.run("squeue", "--noheader").strip(), "end in Slurm", within_s=90)
        root.delete(f"/budgets/{budget}").raise_for_status()
        root.put("/quotas/projects/vision", json={}).raise_for_status()
        bob.post(f"{JOBS}/{second}/cancel", json={})


def test_a_secret_reaches_the_task_and_nothing_of_slurm(
    slipway: RunningPortal, slurm: SlurmCluster, alice: httpx.Client, bob: httpx.Client
) -> None:
    alice.put("/projects/vision/secrets/TOKEN", json={"value": _SECRET}).raise_for_status()
    job = submit(bob, script=_READS_SECRET)
    wait_for(lambda: "digest" in log_of(bob, job), "the secret in the task", within_s=120)
    number = slurm.run("squeue", "--noheader", "--states=RUNNING", "--format=%A").split()[0]
    script = slurm.folder / f"script-{time.time_ns()}"
    slurm.run("scontrol", "write", "batch_script", number, str(script))
    shown = slurm.run("scontrol", "--details", "show", "job", number)
    for text in (script.read_text(), shown, slurm.run("squeue", "--Format=ALL", "--noheader")):
        assert _SECRET not in text
    kept = [path for path in slurm.folder.rglob("*") if path.is_file()]
    assert kept
    assert not [path for path in kept if _SECRET.encode() in path.read_bytes()]
    _end(bob, job)


def test_audit_lines_name_what_happened_in_the_pool(
    slipway: RunningPortal, alice: httpx.Client, bob: httpx.Client
) -> None:
    job = submit(bob, script=_WAITS)
    wait_for_state(bob, job, "running")
    _end(bob, job)
    items = alice.get("/projects/vision/audit").raise_for_status().json()["items"]
    verbs = {item["verb"] for item in items if job in json.dumps(item)}
    assert any("cancel" in verb or "stop" in verb for verb in verbs), (verbs, items[:3])
    with slipway.client("root") as root:
        pools = root.get("/audit").raise_for_status().json()["items"]
        assert "pool.create" in {item["verb"] for item in pools}
