"""What can never run is refused in words, and nothing is queued, stored or charged."""

import gzip
import io
import json
import tarfile
from typing import Any

import pytest
from django.http import HttpResponse

from portal.compute.models import ProjectEnvironment
from portal.storage.models import StoredFile
from portal.training.models import Job, Snapshot
from portal.training.services import snapshots
from portal.workloads.models import Workload
from tests.personas import Api, Personas, json_of
from tests.portal.training.jobs import (
    CODE,
    digest_of,
    made_job,
    send_snapshot,
    submit,
    take_code,
    tar_of,
)
from tests.portal.workloads.machines import Machine, make_tier


def refusal(answer: HttpResponse, status: int = 422) -> dict[str, Any]:
    """Return the problem a refused request was answered with, checked for what each must have."""
    assert answer.status_code == status, answer.content
    assert answer.headers["Content-Type"] == "application/problem+json"
    problem: dict[str, Any] = json_of(answer)
    assert problem["detail"]
    return problem


def nothing_queued() -> bool:
    return not (Job.objects.exists() or Workload.objects.exists())


def test_next_steps_say_how_many_names_they_leave_out(bob: Api, machine: Machine) -> None:
    for number in range(12):
        make_tier(f"tier-{number:02}")
    take_code(bob)
    problem = json_of(submit(bob, tier="none"))
    assert problem["next_step"].endswith(", tier-05 and 6 more.")
    server = json_of(bob.post("projects/vision/notebooks/servers", {"name": "a", "tier": "none"}))
    assert server["next_step"].endswith(", tier-05 and 6 more."), server
    many = take_code(bob, {f"{number}{'x' * 220}.py": b"" for number in range(7)})
    problem = json_of(submit(bob, snapshot=many, script="gone.py"))
    assert problem["next_step"].count("the beginning of 224 characters") == 5
    assert problem["next_step"].endswith(" and 2 more.")


@pytest.mark.parametrize(
    ("changes", "code", "field"),
    [
        ({"script": "gone.py"}, "no_such_script", "script"),
        ({"script": "../train.py"}, "no_such_script", "script"),
        ({"script": "lib"}, "no_such_script", "script"),
        ({"tier": "no-such-tier"}, "no_such_tier", "tier"),
        ({"tier": "huge"}, "never_fits", "tier"),
        ({"nodes": 5}, "never_fits", "nodes"),
        ({"backend": "docker"}, "no_such_backend", "backend"),
        ({"strategy": "fdsp"}, "bad_strategy", "strategy"),
        ({"strategy": "ddp=3", "procs": 2}, "bad_strategy", "strategy"),
        ({"strategy": "ps=2:async", "procs": 2}, "bad_strategy", "strategy"),
        ({"strategy": "pipeline=2*tensor=2", "procs": 6}, "bad_strategy", "strategy"),
        ({"requirements": "-r other.txt"}, "bad_requirement", "requirements"),
        ({"params": {f"p{n}": "x" * 4000 for n in range(20)}}, "too_long", "params"),
        ({"args": ["x" * 4000] * 20}, "too_long", "args"),
        ({"snapshot": "0" * 64}, "no_such_snapshot", "snapshot"),
    ],
)
def test_what_can_never_run_is_refused_before_anything_is_queued(
    bob: Api, machine: Machine, changes: dict[str, Any], code: str, field: str
) -> None:
    make_tier("huge", cpus=512)
    take_code(bob)
    problem = refusal(submit(bob, **({"requirements": "numpy"} | changes)))
    assert (problem["code"], problem["field"]) == (code, field)
    assert problem["next_step"]
    assert nothing_queued()
    assert not ProjectEnvironment.objects.exists()


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"nodes": 0}, "nodes"),
        ({"procs": 0}, "procs"),
        ({"backend": "slurm"}, "backend"),
        ({"nodes": -1}, "nodes"),
        ({"nodes": 1025}, "nodes"),
        ({"procs": 257}, "procs"),
        ({"nodes": "two"}, "nodes"),
        ({"script": "train\0.py"}, "script"),
        ({"script": ""}, "script"),
        ({"params": {"lr": "a\0b"}}, "params"),
        ({"params": {"lr": "\ud800"}}, "params"),
        ({"params": {"--lr": "1"}}, "params"),
        ({"params": {"lr": "x" * 4097}}, "params"),
        ({"params": {f"p{n}": "1" for n in range(201)}}, "params"),
        ({"args": ["a\0"]}, "args"),
        ({"snapshot": "../../etc/passwd"}, "snapshot"),
        ({"git": {"commit": "a" * 40, "diff": "a\0"}}, "git"),
        ({"git": {"commit": "a" * 40, "diff": "x" * 1_000_001}}, "git"),
        ({"max_hours": 0}, "max_hours"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"hang_after_minutes": 0}, "hang_after_minutes"),
        ({"strategy": "x" * 201}, "strategy"),
        ({"nodez": 2}, "nodez"),
    ],
)
def test_a_field_out_of_bounds_is_named(
    bob: Api, machine: Machine, changes: dict[str, Any], field: str
) -> None:
    take_code(bob)
    body = {"script": "train.py", "tier": "small", "snapshot": digest_of(tar_of(CODE))} | changes
    for path in ("projects/vision/jobs", "projects/vision/jobs/quote"):
        problem = refusal(bob.call("POST", path, _json(body)))
        assert str(problem.get("field", "")).startswith(field), problem
    assert nothing_queued()


def _json(body: Any) -> bytes:
    """Return JSON with lone surrogates escaped, as a careless client writes them."""
    return json.dumps(body).encode()


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400"])
def test_numbers_that_are_none_are_refused(bob: Api, machine: Machine, number: str) -> None:
    take_code(bob)
    body = (
        f'{{"script": "train.py", "snapshot": "{digest_of(tar_of(CODE))}", "max_hours": {number}}}'
    )
    refusal(bob.call("POST", "projects/vision/jobs", body.encode()))
    assert nothing_queued()


def test_a_strategy_that_fits_and_auto_are_taken(bob: Api, machine: Machine) -> None:
    take_code(bob)
    for strategy, ranks in (("auto", 3), ("pipeline=2*ddp", 4), ("ps=1:ssp=3", 3), (None, 2)):
        answer = submit(bob, strategy=strategy, procs=ranks)
        assert answer.status_code == 201
        assert json_of(answer)["strategy"] == strategy


def test_a_refusal_of_a_strategy_says_what_to_start_instead(bob: Api, machine: Machine) -> None:
    take_code(bob)
    problem = refusal(submit(bob, strategy="ddp=3", nodes=2))
    assert problem["detail"] == "ddp=3 is for 3 ranks; this job has 2 ranks."
    assert problem["next_step"].startswith("Start 3 ranks")


def test_without_a_machine_the_refusal_says_so(bob: Api, people: Personas) -> None:
    take_code(bob)
    assert refusal(submit(bob, tier=None), 409)["code"] == "no_tiers"
    make_tier("small")
    assert refusal(submit(bob))["code"] == "no_nodes"


def test_anothers_objects_answer_as_if_they_did_not_exist(
    bob: Api, machine: Machine, people: Personas
) -> None:
    job = made_job(bob)
    charlie = Api.of(people.charlie)
    theirs = take_code(charlie, {"secret.py": b"1"}, project="other")
    missing = refusal(submit(bob, snapshot="0" * 64))
    foreign = refusal(submit(bob, snapshot=theirs, script="secret.py"))
    assert _same(missing) == _same(foreign)
    job_id = job["workload"]["id"]
    for path in (
        *(f"jobs/{job_id}{end}" for end in ("", "/events", "/logs", "/samples", "/checkpoints")),
        f"jobs/{job_id}/follow",
        f"snapshots/{job['snapshot']['digest']}",
    ):
        # In a project of their own, which does not hold it, and in one they cannot see.
        for project in ("other", "vision"):
            problem = refusal(charlie.get(f"projects/{project}/{path}"), 404)
            gone = path.replace(job_id, "wl_01j00000000000000000000000")
            gone = gone.replace(job["snapshot"]["digest"], "0" * 64)
            assert _same(problem) == _same(refusal(charlie.get(f"projects/other/{gone}"), 404))
    for verb in ("cancel", "clone"):
        refusal(charlie.post(f"projects/other/jobs/{job_id}/{verb}", {}), 404)
    clone = f"projects/vision/jobs/{job_id}/clone"
    assert _same(refusal(bob.post(clone, {"snapshot": theirs}))) == _same(missing)


def _same(problem: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value for name, value in problem.items() if name not in ("request_id", "instance")
    }


def test_a_snapshot_of_two_gigabytes_is_refused_before_a_byte_is_read(bob: Api) -> None:
    problem = refusal(send_snapshot(bob, b"x", Content_Length=str(2 * 10**9)), 413)
    assert (problem["code"], problem["field"]) == ("snapshot_too_large", "snapshot")
    assert "has 1907 MiB; at most 500 MiB" in problem["detail"]
    assert ".slipwayignore" in problem["next_step"]


def test_a_snapshot_that_says_less_than_it_sends_is_cut_off_at_the_limit(
    bob: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "MAX_SNAPSHOT_BYTES", 1024**2)
    content = tar_of({"big.bin": bytes(3 * 1024**2)})
    refusal(send_snapshot(bob, content), 413)
    assert not StoredFile.objects.exists()


def _linked() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        member = tarfile.TarInfo("link.py")
        member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(member)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no tar at all" * 100,
        gzip.compress(tar_of(CODE)),
        tar_of(CODE)[:700],
        tar_of({}),
        tar_of({"../out.py": b"1"}),
        tar_of({"/etc/cron.d/x": b"1"}),
        tar_of({"a\\b.py": b"1"}),
        tar_of({"a.py": b"1", "A.py": b"2"}),
        _linked(),
    ],
    ids=[
        "nothing",
        "noise",
        "gzip",
        "cut",
        "empty",
        "up",
        "absolute",
        "backslash",
        "twins",
        "link",
    ],
)
def test_bytes_that_are_no_archive_of_code_are_refused(bob: Api, content: bytes) -> None:
    problem = refusal(send_snapshot(bob, content))
    assert (problem["code"], problem["field"]) == ("bad_snapshot", "snapshot")
    assert not StoredFile.objects.exists()
    assert not Snapshot.objects.exists()


def test_bytes_that_arrive_changed_are_refused(bob: Api) -> None:
    problem = refusal(send_snapshot(bob, tar_of(CODE), X_Slipway_Sha256="0" * 64))
    assert problem["code"] == "digest_mismatch"
    assert not Snapshot.objects.exists()


def test_a_snapshot_is_sent_as_bytes(bob: Api) -> None:
    refusal(send_snapshot(bob, tar_of(CODE), kind="application/json"), 415)


def test_a_snapshot_in_use_cannot_be_deleted_as_a_file(bob: Api, machine: Machine) -> None:
    made_job(bob)
    file = StoredFile.objects.get()
    assert refusal(bob.delete(f"files/{file.pk}"), 409)["code"] == "file_in_use"
