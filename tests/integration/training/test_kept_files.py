"""Files that a job writes become artifacts of its run, or are listed with a reason."""

import secrets
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.jobs import Jobs
from tests.portals import RunningPortal

pytestmark = pytest.mark.integration

# Ordinary outputs beside everything that could fool the upload, and then an error.
_WRITES = r"""
import os
os.makedirs("outputs")
open("outputs/model.txt", "w").write("weights")
os.makedirs("runs/exp1")
open("runs/exp1/events.out.tfevents.1.host", "w").write("events")
os.makedirs("__pycache__")
open("__pycache__/x.pyc", "w").write("cache")
with open("sparse.bin", "wb") as file:
    file.truncate(3_000_000_000)
os.symlink("/etc/passwd", "passwd")
os.symlink("/etc", "outputs/etc")
os.mkfifo("pipe")
open("two\nlines.txt", "w").write("x")
open(b"\xff.txt", "w").write("x")
open("notes 100%.txt", "w").write("a name to be quoted")
os.makedirs("closed")
os.chmod("closed", 0)
raise SystemExit("the script fails in the end")
"""


@pytest.fixture
def api(whole_slipway: Callable[[], RunningPortal]) -> Iterator[tuple[httpx.Client, str]]:
    """A client that owns a new project, and the slug of that."""
    slug = f"kept-{secrets.token_hex(3)}"
    with whole_slipway().client("root") as client:
        client.post("/projects", json={"name": slug}).raise_for_status()
        yield client, slug


def _files(jobs: Jobs, job: str) -> Any:
    (files,) = jobs.look(job)["files"]
    return files


def _artifact(client: httpx.Client, slug: str, job: str, path: str) -> httpx.Response:
    """Read an artifact of a job's run as MLflow's clients do."""
    address = str(client.base_url).removesuffix("/").removesuffix("/api/v1")
    mlflow = f"{address}/mlflow/{slug}/api/2.0"
    query = {"filter": f"tags.`slipway.job` = '{job}'"}
    experiments = client.post(f"{mlflow}/mlflow/experiments/search", json={"max_results": 50})
    ids = [it["experiment_id"] for it in experiments.raise_for_status().json()["experiments"]]
    runs = client.post(f"{mlflow}/mlflow/runs/search", json={"experiment_ids": ids, **query})
    (run,) = runs.raise_for_status().json()["runs"]
    root = run["info"]["artifact_uri"].removeprefix("mlflow-artifacts:/").strip("/")
    return client.get(f"{mlflow}/mlflow-artifacts/artifacts/{root}/{path}")


@pytest.mark.thorough
def test_files_of_a_failed_job_are_kept_or_listed(api: tuple[httpx.Client, str]) -> None:
    client, slug = api
    jobs = Jobs(client, project=slug)
    job = jobs.submit(_WRITES)
    ended = jobs.end_of(job, within_s=120)
    assert ended["reason"] == "exit"
    assert "the script fails in the end" in ended["explanation"]

    files = _files(jobs, job)
    kept = {item["path"]: item["kind"] for item in files["kept"]}
    assert kept == {
        "outputs/model.txt": "",
        "runs/exp1/events.out.tfevents.1.host": "TensorBoard events",
        "notes 100%.txt": "",
    }, files
    left_out = {item["path"]: item["reason"] for item in files["left_out"]}
    assert left_out["sparse.bin"] == "over the limit of 2.0 GB (--keep-limit)"
    assert left_out["passwd"] == left_out["outputs/etc"] == "a symbolic link"
    assert left_out["pipe"] == "not a regular file"
    assert "character" in left_out["two\\nlines.txt"]
    assert left_out["\\udcff.txt"] == "its name is not UTF-8"
    assert "closed/" in left_out
    assert files["kept_count"] == 3
    assert files["left_out_count"] == len(left_out) == 7

    model = _artifact(client, slug, job, "files/outputs/model.txt")
    assert (model.status_code, model.text) == (200, "weights")
    log = jobs.whole_log(job)
    assert "[slipway] Kept 3 files" in log
    assert "[slipway] Not kept: passwd (0 bytes): a symbolic link." in log


@pytest.mark.thorough
def test_the_rule_of_a_job_decides_and_is_shown_before_it_runs(
    api: tuple[httpx.Client, str],
) -> None:
    client, slug = api
    jobs = Jobs(client, project=slug)
    script = "open('a.ckpt', 'w').write('12345'); open('b.log', 'w').write('x')"
    job = jobs.submit(script, keep=["*.ckpt"], keep_limit_bytes=10)
    nothing = jobs.submit(script, keep_limit_bytes=0)
    assert jobs.end_of(job, within_s=120)["state"] == "succeeded"
    files = _files(jobs, job)
    assert [item["kind"] for item in files["kept"]] == ["Lightning checkpoint"]
    assert [item["reason"] for item in files["left_out"]] == ["no pattern of --keep matches"]
    body = {"snapshot": jobs.look(job)["snapshot"]["digest"], "script": "train.py"}
    quote = client.post(f"/projects/{slug}/jobs/quote", json={**body, "keep": ["*.ckpt"]})
    assert quote.json()["files"].startswith("Files like *.ckpt that the job writes")
    assert jobs.end_of(nothing, within_s=120)["state"] == "succeeded"
    assert jobs.look(nothing)["files"] == []
