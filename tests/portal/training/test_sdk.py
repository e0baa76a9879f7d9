"""The SDK and the command line, as they are, against a real portal."""

import http.client
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import slipway
from slipway import errors
from slipway.resources.jobs import job_body
from slipway.schemas.workloads import WorkloadState
from slipway.snapshots import take_snapshot
from tests.live import ROOT, LivePortal
from tests.portal.training.lab import Lab, client_of
from tests.slipway.snapshots.folders import make_repository


@pytest.fixture(scope="module")
def lab(portal: LivePortal) -> Iterator[Lab]:
    made = Lab(portal)
    yield made
    made.end()


@pytest.fixture
def alice(portal: LivePortal) -> Iterator[slipway.Client]:
    with client_of(portal, "alice") as client:
        yield client


@pytest.fixture
def project(alice: slipway.Client) -> str:
    return alice.projects.create(f"Project {secrets.token_hex(4)}").slug


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A repository with a script, one line of which is not committed."""
    folder = tmp_path / "code"
    make_repository(folder, {"train.py": "print('committed')\n", "lib/model.py": "SIZE = 3\n"})
    (folder / "train.py").write_text("print('changed')\n")
    return folder


def test_a_job_is_quoted_submitted_cancelled_and_cloned(
    alice: slipway.Client, lab: Lab, project: str, code: Path
) -> None:
    with take_snapshot(code, script="train.py") as snapshot:
        body = job_body(
            script="train.py",
            snapshot=snapshot.digest,
            git=snapshot.git,
            params={"lr": 0.1},
            tier=lab.tier,
            strategy="ddp",
            procs=2,
        )
        quote = alice.jobs.quote(body, project=project)  # the code is not there yet
        assert (quote.can_ever_run, quote.nano_usd_per_hour) == (True, 3_600_000_000)
        with pytest.raises(errors.InvalidInput) as refused:
            alice.jobs.submit_body(body, project=project)
        assert (refused.value.code, refused.value.field) == ("no_such_snapshot", "snapshot")
        assert alice.snapshots.upload(snapshot, project=project).files == 2
        job = alice.jobs.submit_body(body, project=project)
    assert job.git is not None
    assert "+print('changed')" in job.git.diff
    assert [item.workload.id for item in alice.jobs.list(project=project)] == [job.workload.id]
    assert alice.jobs.get(job.workload.id, project=project) == job
    clone = alice.jobs.clone(job.workload.id, project=project, params={"lr": 0.2})
    assert (clone.params, clone.git, clone.snapshot) == ({"lr": "0.2"}, job.git, job.snapshot)
    assert clone.cloned_from == job.workload.id
    ended = alice.jobs.cancel(job.workload.id, project=project)
    assert ended.workload.state == WorkloadState.STOPPED
    story = alice.jobs.events(job.workload.id, project=project)
    assert next(iter(story)).kind == "stopped"
    task = lab.place(clone)
    lab.report(task, 1, "running")
    saved = {"step": 5, "size_bytes": 100, "kept": [5]}
    lab.report(task, 2, "progress", step=6, checkpoint=saved)
    content = b"line\n" * 1_000_000
    lab.log(task, 0, content, end=True)
    lab.sample(task, 12.5)
    path = clone.workload.id
    checkpoints = alice.jobs.checkpoints(path, project=project)
    assert [(checkpoint.step, checkpoint.size_bytes) for checkpoint in checkpoints] == [(5, 100)]
    assert [sample.cpu_percent for sample in alice.jobs.samples(path, project=project)] == [12.5]
    assert b"".join(alice.jobs.logs(path, project=project)) == content
    assert b"".join(alice.jobs.logs(path, project=project, offset=7, limit=9)) == content[7:16]
    lab.report(task, 3, "ended", reason="completed")
    done = alice.jobs.wait(path, project=project, timeout_s=20)
    assert (done.workload.state, done.step, done.resumable_step) == ("succeeded", 6, 5)
    shown = alice.workloads.get(path, project=project)
    assert (shown.kind, shown.state, len(shown.logs)) == ("job", "succeeded", 1)
    assert b"".join(alice.workloads.log(path, project=project)) == content
    assert b"".join(alice.workloads.log(path, project=project, offset=4_999_990)) == content[-10:]
    assert [use.cpu_percent for use in alice.workloads.samples(path, project=project)] == [12.5]
    listed = alice.workloads.list(project=project, kind="job", search=shown.name)
    assert [workload.id for workload in listed] == [path, job.workload.id]
    assert not list(alice.workloads.list(project=project, kind="notebook"))


def test_a_workload_of_any_kind_is_stopped_with_a_message(
    alice: slipway.Client, lab: Lab, project: str, code: Path
) -> None:
    with take_snapshot(code, script="train.py") as snapshot:
        alice.snapshots.upload(snapshot, project=project)
        body = job_body(script="train.py", snapshot=snapshot.digest, tier=lab.tier)
        job = alice.jobs.submit_body(body, project=project).workload.id
    stopped = alice.workloads.stop(job, project=project, message="Not needed.")
    assert stopped.state == WorkloadState.STOPPED
    events = list(alice.workloads.events(job, project=project))
    assert [event.kind for event in events] == ["stopped", "queued", "admitted", "submitted"]
    assert "Not needed." in events[0].message
    assert alice.workloads.page(job, project=project).endswith(f"/p/{project}/workloads/{job}")


@pytest.mark.thorough
def test_the_command_line_submits_and_shows(
    portal: LivePortal, lab: Lab, project: str, code: Path
) -> None:
    environment = os.environ | {
        "PYTHONPATH": str(ROOT / "platform"),
        "SLIPWAY_URL": portal.url,
        "SLIPWAY_TOKEN": portal.tokens["alice"],
        "SLIPWAY_PROJECT": project,
    }

    def output_of(*arguments: str, status: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "slipway", *arguments],
            cwd=code,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr

    tier = ("--tier", lab.tier)
    assert "3.6" in output_of("train", "train.py", *tier, "--quote")
    answer = output_of("train", "train.py", *tier, "--param", "lr=0.1", "--procs", "2", "--json")
    job = json.loads(answer)
    shown = json.loads(output_of("job", "show", job["workload"]["id"], "--json"))
    assert (shown["params"], shown["workload"]["procs"]) == ({"lr": "0.1"}, 2)
    boxed = ("--backend", "docker", "--quote")
    assert "No node offers the back end docker" in output_of("train", "train.py", *tier, *boxed)
    refused = output_of("train", "train.py", *tier, "--procs", "2", "--strategy", "ddp=3", status=6)
    assert "ddp=3 is for 3 ranks" in refused
    assert "Start 3 ranks" in refused


def test_two_gigabytes_are_refused_before_a_byte_is_sent(portal: LivePortal, project: str) -> None:
    connection = http.client.HTTPConnection(urlsplit(portal.url).netloc, timeout=20)
    try:
        connection.putrequest("POST", f"/api/v1/projects/{project}/snapshots")
        connection.putheader("Authorization", f"Bearer {portal.tokens['alice']}")
        connection.putheader("Content-Type", "application/octet-stream")
        connection.putheader("Content-Length", str(2 * 10**9))
        connection.endheaders()
        answer = connection.getresponse()
        problem = json.loads(answer.read())
    finally:
        connection.close()
    assert (answer.status, problem["code"]) == (413, "snapshot_too_large")
