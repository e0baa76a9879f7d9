"""What jobs report of their training: checkpoints, and the strategy they have taken."""

from typing import Any

import pytest

from portal.training.models import Checkpoint
from portal.training.services import reports
from portal.workloads.models import Lease, Workload
from portal.workloads.scheduling import run_passes
from tests.personas import Api, json_of, whole_list
from tests.portal.training.jobs import made_job, place
from tests.portal.workloads.machines import Machine, finish, leases_of, run, send_report

pytestmark = pytest.mark.postgres


def running(api: Api, **changes: Any) -> tuple[Workload, Lease]:
    """Return a job that runs, and its first lease."""
    workload = place(made_job(api, **changes))
    run(workload)
    return workload, leases_of(workload)[0]


def save(lease: Lease, sequence: int, step: int, *kept: int, size_bytes: int = 100) -> None:
    saved = {"step": step, "size_bytes": size_bytes, "kept": list(kept)}
    send_report(lease, "progress", sequence, step=step, checkpoint=saved)


def checkpoints_of(api: Api, workload: Workload) -> list[tuple[int, int, int]]:
    checkpoints = json_of(api.get(f"projects/vision/jobs/{workload.pk}/checkpoints"))
    assert all(saved["created_at"] for saved in checkpoints)
    return [(saved["step"], saved["attempt"], saved["size_bytes"]) for saved in checkpoints]


def test_checkpoints_are_listed_as_retention_leaves_them(bob: Api, machine: Machine) -> None:
    workload, lease = running(bob)
    assert checkpoints_of(bob, workload) == []
    for _ in range(2):  # reports are repeated until they are known to have come
        save(lease, 3, 10, 10)
        save(lease, 4, 20, 10, 20)
    assert checkpoints_of(bob, workload) == [(20, 1, 100), (10, 1, 100)]
    save(lease, 5, 30, 20, 30, size_bytes=7)
    save(lease, 3, 10, 10)  # a late one says nothing new
    assert checkpoints_of(bob, workload) == [(30, 1, 7), (20, 1, 100)]
    shown = json_of(bob.get(f"projects/vision/jobs/{workload.pk}"))
    assert (shown["resumable_step"], shown["step"]) == (30, 30)


def test_checkpoints_outlive_an_attempt_and_say_of_which_they_are(
    bob: Api, machine: Machine
) -> None:
    workload, lease = running(bob)
    save(lease, 3, 10, 10)
    save(lease, 4, 20, 10, 20)
    finish(workload, "signal")
    run_passes()
    run(workload)
    again = leases_of(workload)[0]
    assert again.epoch == 2
    assert json_of(bob.get(f"projects/vision/jobs/{workload.pk}"))["resumable_step"] == 20
    save(lease, 5, 25, 25)  # of the attempt before: nobody listens
    save(again, 3, 20, 10, 20)
    save(again, 4, 30, 20, 30)
    assert checkpoints_of(bob, workload) == [(30, 2, 100), (20, 2, 100)]


def test_a_script_that_saves_without_end_does_not_fill_the_database(
    bob: Api, machine: Machine, monkeypatch: Any
) -> None:
    monkeypatch.setattr(reports, "MAX_CHECKPOINTS", 3)
    workload, lease = running(bob)
    for step in range(1, 8):
        save(lease, step + 2, step)
    assert [step for step, *_ in checkpoints_of(bob, workload)] == [7, 6, 5]


def test_a_job_tells_by_which_strategy_it_trains_and_why(bob: Api, machine: Machine) -> None:
    workload, lease = running(bob, strategy="auto", procs=2)
    taken = {"word": "zero2", "reason": "Gradients are larger than what is free on a card."}
    for _ in range(2):
        send_report(lease, "progress", 3, strategy=taken)
    shown = json_of(bob.get(f"projects/vision/jobs/{workload.pk}"))
    assert shown["strategy"] == "auto"
    assert shown["strategy_reason"] == f"zero2: {taken['reason']}"
    story = json_of(bob.get(f"projects/vision/jobs/{workload.pk}/events"))["items"]
    messages = [line["message"] for line in story if "zero2" in line["message"]]
    assert messages == [f"Strategy: zero2: {taken['reason']}"]
    clone = json_of(bob.post(f"projects/vision/jobs/{workload.pk}/clone", {}))
    assert (clone["strategy"], clone["strategy_reason"]) == ("auto", None)


def test_a_job_says_why_it_trains_as_it_was_told(bob: Api, machine: Machine) -> None:
    workload, lease = running(bob, strategy="ddp")
    send_report(lease, "progress", 3, strategy={"word": "ddp", "reason": "ddp was asked for."})
    shown = json_of(bob.get(f"projects/vision/jobs/{workload.pk}"))
    assert (shown["strategy"], shown["strategy_reason"]) == ("ddp", "ddp was asked for.")


def test_every_checkpoint_is_listed(bob: Api, machine: Machine) -> None:
    workload, _ = running(bob)
    Checkpoint.objects.bulk_create(
        Checkpoint(job_id=workload.pk, step=step, size_bytes=1, attempt=1) for step in range(1_005)
    )
    path = f"projects/vision/jobs/{workload.pk}/checkpoints"
    steps = [saved["step"] for saved in whole_list(bob, path)]
    assert steps == list(reversed(range(1_005)))
    foreign = bob.get(f"{path}?cursor=YWJj")
    assert (foreign.status_code, json_of(foreign)["code"]) == (422, "invalid_cursor")
