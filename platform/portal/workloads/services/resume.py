"""Carrying on what a budget or a search has stopped: the same workload, from its checkpoint."""

from django.db import transaction

from portal.accounts import audit
from portal.accounts.models import User
from portal.core import clock
from portal.core.errors import Conflict
from portal.workloads.lifecycle import StopOutcome
from portal.workloads.models import Workload
from portal.workloads.ports import AdmissionDeferred, admission
from portal.workloads.services.submission import request_of
from portal.workloads.transitions import locked, move
from slipway.schemas.workloads import ReasonCode, WorkloadState


def is_resumable(workload: Workload) -> bool:
    """Return whether the workload was stopped by a budget, and so can be resumed."""
    return workload.status == WorkloadState.STOPPED and workload.reason == ReasonCode.BUDGET


def may_go_on(workload: Workload) -> bool:
    """Return whether the workload may run again, and so needs its checkpoint."""
    return is_resumable(workload) or was_stopped_early(workload)


def was_stopped_early(workload: Workload) -> bool:
    """Return whether the search that it belongs to has stopped the workload before its end."""
    return workload.status == WorkloadState.STOPPED and workload.reason == ReasonCode.EARLY_STOP


def resume_workload(*, workload: Workload, by: User) -> Workload:
    """Queue again what a budget has stopped. Its next attempt resumes from its checkpoint.

    Raises Conflict for anything else, and whatever the admission refuses with.
    """
    with transaction.atomic():
        current = locked(workload.pk)
        assert current is not None  # noqa: S101  (workloads are never deleted)
        if not is_resumable(current):
            raise Conflict(
                f"The {current.kind} is {current.state}; only work stopped by a budget can be "
                "resumed.",
                code="not_resumable",
                next_step="Clone it to run it again.",
            )
        _queue_again(current, f"Resumed by {by.display_name}.")
        audit.record(
            "workload.resume",
            kind="workload",
            target=current,
            label=current.name,
            project=current.project,
        )
    return current


def resume_stopped_early(*, workload: Workload, message: str) -> bool:
    """Queue again what its search has stopped early. Returns whether it was stopped so.

    `message` is the sentence in its history. Raises whatever the admission refuses with.
    """
    with transaction.atomic():
        current = locked(workload.pk)
        if current is None or not was_stopped_early(current):
            return False
        _queue_again(current, message)
    return True


def _queue_again(workload: Workload, message: str) -> None:
    """Move a stopped workload back into the queue, if the admission agrees. Raises Conflict."""
    answer = admission().decide(request_of(workload))
    if isinstance(answer, AdmissionDeferred):
        raise Conflict(answer.reason, code="held", next_step="Try again later.")
    move(
        workload,
        WorkloadState.QUEUED,
        kind="queued",
        message=message,
        plan=StopOutcome.NONE,
        reason="",
        reason_text="",
        next_step="",
        exit_code=None,
        ended_at=None,
        waits_since=clock.now(),
        deadline_at=None,
        held_nodes=[],
        held_since=None,
        kept_until=None,
        rendezvous_address="",
        rendezvous_port=0,
        rendezvous_agent_store=False,
    )
