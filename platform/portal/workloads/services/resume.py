"""Carrying on what a budget has stopped: the same workload, from its newest checkpoint."""

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
        answer = admission().decide(request_of(current))
        if isinstance(answer, AdmissionDeferred):
            raise Conflict(answer.reason, code="held", next_step="Try again later.")
        move(
            current,
            WorkloadState.QUEUED,
            kind="queued",
            message=f"Resumed by {by.display_name}.",
            plan=StopOutcome.NONE,
            reason="",
            reason_text="",
            next_step="",
            exit_code=None,
            ended_at=None,
            waits_since=clock.now(),
            deadline_at=None,
            rendezvous_address="",
            rendezvous_port=0,
            rendezvous_agent_store=False,
        )
        audit.record(
            "workload.resume",
            kind="workload",
            target=current,
            label=current.name,
            project=current.project,
        )
    return current
