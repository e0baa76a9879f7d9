"""Copies of checkpoints in the store: who may bring and fetch them, what is kept, when it goes."""

import io
import tarfile
from datetime import timedelta
from typing import Any

import pytest
from django.http import HttpResponse
from pytest_django import Settings

from portal.compute.models import Node
from portal.core import clock
from portal.spend.holding_sync import sync_holdings
from portal.storage.models import StoredFile
from portal.storage.usage import stored_bytes
from portal.training.models import Checkpoint
from portal.training.services.checkpoint_copies import delete_unneeded
from portal.workloads.models import Lease, Workload
from portal.workloads.reconciler import reconcile
from portal.workloads.scheduling import run_passes
from slipway.schemas.checkpoints import ending, header
from tests.checkpoints import FILES, make_manifest, make_packed, packed_of
from tests.personas import Api, Personas, json_of
from tests.portal.training.jobs import digest_of, made_job, place
from tests.portal.workloads.machines import (
    Machine,
    finish,
    leases_of,
    make_machine,
    run,
    send_report,
)
from tests.turns import thorough_after

OCTETS = "application/octet-stream"


def running(api: Api, **changes: Any) -> tuple[Workload, Lease]:
    """Return a job that runs, and its first lease."""
    workload = place(made_job(api, **changes))
    run(workload)
    return workload, leases_of(workload)[0]


def save(lease: Lease, sequence: int, step: int, *kept: int, size_bytes: int = 100) -> None:
    saved = {"step": step, "size_bytes": size_bytes, "kept": list(kept)}
    send_report(lease, "progress", sequence, step=step, checkpoint=saved)


def path_of(lease: Lease, step: int) -> str:
    return f"checkpoints/{lease.task_id}/{lease.epoch}/{step}"


def bring(machine: Machine, lease: Lease, step: int, body: bytes | None = None) -> HttpResponse:
    """Send a checkpoint as the machine's agent does."""
    body = make_packed(step) if body is None else body
    return machine.call("PUT", path_of(lease, step), body, content_type=OCTETS)


def fetch(machine: Machine, lease: Lease, step: int) -> tuple[int, bytes]:
    answer: Any = machine.call("GET", path_of(lease, step))
    return answer.status_code, b"".join(answer) if answer.streaming else answer.content


def code_of(answer: HttpResponse) -> tuple[int, str]:
    return answer.status_code, json_of(answer)["code"]


def copied(api: Api, workload: Workload) -> dict[int, bool]:
    """Return each checkpoint that is listed and whether it is in the store."""
    checkpoints = json_of(api.get(f"projects/vision/jobs/{workload.pk}/checkpoints"))
    return {saved["step"]: saved["copied_at"] is not None for saved in checkpoints}


def spec_of(machine: Machine) -> dict[str, Any]:
    (task,) = json_of(machine.call("GET", "desired"))["tasks"]
    spec: dict[str, Any] = task["spec"]
    return spec


def story_of(api: Api, workload: Workload) -> list[str]:
    events = json_of(api.get(f"projects/vision/jobs/{workload.pk}/events"))["items"]
    return [line["message"] for line in events]


def test_the_newest_checkpoint_is_kept_in_the_store(bob: Api, machine: Machine) -> None:
    workload, lease = running(bob)
    assert spec_of(machine)["checkpoint"] is None
    save(lease, 3, 10, 10)
    assert copied(bob, workload) == {10: False}
    for _ in range(2):  # what was interrupted is sent again
        assert bring(machine, lease, 10).status_code == 204
    assert copied(bob, workload) == {10: True}
    save(lease, 4, 20, 10, 20)
    assert bring(machine, lease, 20).status_code == 204
    assert copied(bob, workload) == {20: True, 10: False}
    assert StoredFile.objects.filter(name__startswith="checkpoint-").count() == 1
    packed = make_packed(20)
    assert spec_of(machine)["checkpoint"] == {
        "step": 20,
        "size_bytes": len(packed),
        "digest": digest_of(packed),
    }
    assert fetch(machine, lease, 20) == (200, packed)
    assert fetch(machine, lease, 10)[0] == 404
    assert code_of(bring(machine, lease, 10)) == (409, "newer_checkpoint")


def test_a_copy_outlives_what_retention_removes_from_the_node(bob: Api, machine: Machine) -> None:
    workload, lease = running(bob)
    save(lease, 3, 10, 10)
    bring(machine, lease, 10)
    save(lease, 4, 20, 20)
    assert copied(bob, workload) == {20: False, 10: True}
    assert spec_of(machine)["checkpoint"]["step"] == 10
    bring(machine, lease, 20)
    assert copied(bob, workload) == {20: True}


def test_a_copy_may_come_before_its_report(bob: Api, machine: Machine) -> None:
    workload, lease = running(bob)
    assert bring(machine, lease, 10).status_code == 204
    save(lease, 3, 10, 10, size_bytes=5)
    assert copied(bob, workload) == {10: True}


def test_its_bytes_are_metered_as_checkpoints_alone(bob: Api, machine: Machine) -> None:
    workload, lease = running(bob)
    files = stored_bytes()["files"][workload.project_id]
    save(lease, 3, 10, 10, size_bytes=100)
    bring(machine, lease, 10)
    usage = stored_bytes()
    assert usage["files"][workload.project_id] == files
    assert usage["checkpoints"][workload.project_id] == 100 + len(make_packed(10))
    assert sync_holdings(clock.now())


def test_the_copy_goes_with_the_end_of_the_job(bob: Api, machine: Machine) -> None:
    workload, lease = running(bob)
    save(lease, 3, 10, 10)
    bring(machine, lease, 10)
    assert delete_unneeded() == 0
    finish(workload)
    assert delete_unneeded() == 1
    assert copied(bob, workload) == {10: False}
    assert not StoredFile.objects.filter(name__startswith="checkpoint-").exists()
    assert code_of(bring(machine, lease, 10)) == (409, "job_ended")


def test_a_copy_cannot_be_deleted_as_a_file(bob: Api, machine: Machine) -> None:
    _, lease = running(bob)
    bring(machine, lease, 10)
    file = StoredFile.objects.get(name__startswith="checkpoint-")
    assert code_of(bob.delete(f"files/{file.pk}")) == (409, "file_in_use")


def test_another_node_has_no_business_with_it(bob: Api, machine: Machine) -> None:
    _, lease = running(bob)
    bring(machine, lease, 10)
    other = make_machine("other")
    assert code_of(bring(other, lease, 20)) == (409, "stale_epoch")
    status, body = fetch(other, lease, 10)
    assert status == 409
    assert b"stale_epoch" in body
    assert Checkpoint.objects.get().step == 10


def test_an_earlier_attempt_brings_nothing_any_more(bob: Api, machine: Machine) -> None:
    workload, lease = running(bob)
    save(lease, 3, 10, 10)
    finish(workload, "signal")
    # Its node is still there, and the next attempt has not begun.
    assert bring(machine, lease, 10).status_code == 204
    run_passes()
    assert code_of(bring(machine, lease, 20)) == (409, "stale_epoch")
    (again,) = leases_of(workload)
    assert fetch(machine, again, 10)[0] == 200
    assert spec_of(machine)["checkpoint"]["step"] == 10


@pytest.mark.parametrize(
    ("is_copied", "message"), [(True, "continues from step 10"), (False, "from the beginning")]
)
def test_a_job_that_loses_its_node_says_from_where_it_goes_on(
    bob: Api,
    machine: Machine,
    is_copied: bool,
    message: str,
    django_capture_on_commit_callbacks: Any,
) -> None:
    workload, lease = running(bob)
    if is_copied:
        save(lease, 3, 10, 10)
        bring(machine, lease, 10)
    save(lease, 4, 20, 10, 20)
    with django_capture_on_commit_callbacks(execute=True):
        lose(machine, lease)
    assert code_of(bring(machine, lease, 20)) == (409, "stale_epoch")
    messages = [line for line in story_of(bob, workload) if "of step 20" in line]
    assert len(messages) == 1
    assert message in messages[0]
    other = make_machine("other")
    run_passes()
    (again,) = leases_of(workload)
    assert again.node.name == "other"
    if is_copied:
        assert spec_of(other)["checkpoint"]["step"] == 10
        assert fetch(other, again, 10) == (200, make_packed(10))


def lose(machine: Machine, lease: Lease) -> None:
    """Let the lease of a task run out unheard."""
    long_ago = clock.now() - timedelta(minutes=5)
    Lease.objects.filter(pk=lease.pk).update(expires_at=long_ago)
    Node.objects.filter(pk=lease.node_id).update(last_seen_at=long_ago)
    reconcile()


def test_one_that_is_too_large_stays_and_the_job_says_so_once(
    bob: Api, machine: Machine, settings: Settings
) -> None:
    settings.SLIPWAY_CHECKPOINT_COPY_MAX_BYTES = 1024**2
    workload, lease = running(bob)
    for sequence, step in enumerate((10, 20, 30), start=3):
        save(lease, sequence, step, step, size_bytes=3 * 1024**2)
    lines = [line for line in story_of(bob, workload) if "stays only on its node" in line]
    (line,) = lines
    assert "step 10 has 3 MiB" in line
    assert "at most 1 MiB are copied" in line
    large = {"__0_0.distcp": bytes(3 * 1024**2)}
    answer = bring(machine, lease, 30, make_packed(30, large))
    assert code_of(answer) == (413, "checkpoint_too_large")
    assert not Checkpoint.objects.copied().exists()


def test_copying_can_be_turned_off(bob: Api, machine: Machine, settings: Settings) -> None:
    settings.SLIPWAY_CHECKPOINT_COPY_MAX_BYTES = 0
    workload, lease = running(bob)
    assert spec_of(machine)["copy_limit_bytes"] == 0
    save(lease, 3, 10, 10)
    assert code_of(bring(machine, lease, 10)) == (413, "checkpoint_too_large")
    assert not [line for line in story_of(bob, workload) if "stays" in line]


def test_parts_of_several_nodes_are_not_taken(bob: Api, people: Personas, machine: Machine) -> None:
    make_machine("second")
    _, lease = running(bob, nodes=2)
    node = Node.objects.get(pk=lease.node_id)
    here = next(candidate for candidate in (machine,) if node.name == "lab")
    assert spec_of(here)["copy_limit_bytes"] == 0
    assert bring(here, lease, 10).status_code == 404


def _linked() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        link = tarfile.TarInfo("__0_0.distcp")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    manifest = make_manifest(10)
    return packed_of(manifest, {})[:-1024] + buffer.getvalue()


HOSTILE = {
    "next to nothing": b"\0",
    "no tar": b"x" * 5000,
    "a manifest alone": packed_of(make_manifest(10), {}),
    "cut short": make_packed(10)[:-1],
    "more behind it": make_packed(10) + b"\0",
    "of another step": make_packed(11),
    "a changed file": make_packed(10).replace(b"weightsweights", b"weightsWEIGHTS", 1),
    "a changed manifest": packed_of(make_manifest(10).replace(b"ddp", b"dpd")),
    "a link": _linked(),
    "a path": packed_of(make_manifest(10, {"../../x": b"1"}), {"../../x": b"1"}),
    "dots": packed_of(make_manifest(10, {"..": b"1"}), {"..": b"1"}),
    "two manifests": packed_of(make_manifest(10, {"manifest.json": b"1"}), {"manifest.json": b"1"}),
    "a bomb": packed_of(make_manifest(10, named={"a": {"size_bytes": 2**60, "sha256": "0" * 64}})),
    "a negative size": packed_of(
        make_manifest(10, named={"a": {"size_bytes": -1, "sha256": "0" * 64}})
    ),
    "a manifest of lists": packed_of(b"[" * 100_000),
    "files as a list": packed_of(make_manifest(10, named=[])),
    "a huge manifest": header("manifest.json", 2**40) + ending(),
    "a format of tomorrow": packed_of(make_manifest(10, format=2)),
}


@pytest.mark.parametrize("fault", thorough_after(6, list(HOSTILE)))
def test_what_is_no_whole_checkpoint_is_refused(bob: Api, machine: Machine, fault: str) -> None:
    _, lease = running(bob)
    answer = bring(machine, lease, 10, HOSTILE[fault])
    assert code_of(answer) == (422, "bad_checkpoint"), answer.content
    assert not Checkpoint.objects.exists()
    assert not StoredFile.objects.filter(name__startswith="checkpoint-").exists()


def test_the_address_is_read_with_care(bob: Api, machine: Machine) -> None:
    _, lease = running(bob)
    answer = machine.call("PUT", path_of(lease, 10), make_packed(10), content_type="text/plain")
    assert answer.status_code == 415
    assert bring(machine, lease, 10**30).status_code == 404
    far = machine.call("PUT", f"checkpoints/{lease.task_id}/{10**30}/1", b"", content_type=OCTETS)
    assert far.status_code == 409
    stranger = machine.call("GET", "checkpoints/task_0/1/1")
    assert stranger.status_code == 409


def test_an_empty_checkpoint_and_a_full_block_travel_too(bob: Api, machine: Machine) -> None:
    _, lease = running(bob)
    for step, files in enumerate(({}, {"a": b""}, {"a": bytes(512), "b": bytes(513)}), start=1):
        assert bring(machine, lease, step, make_packed(step, files)).status_code == 204
        assert fetch(machine, lease, step) == (200, make_packed(step, files))
    assert FILES
