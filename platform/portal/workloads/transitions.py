"""Moving one workload from state to state: the only code that writes `Workload.state` singly.

A move is one guarded UPDATE on (id, state, epoch): the loser of a race changes nothing and gets
False. Its consequences (counts of the fair share, the event, the signal) happen here, in
the same transaction. Locks are always taken in the order workload, lease, node, share.
"""

from typing import Any

from portal.workloads.lifecycle import ACTIVE, check_move
from portal.workloads.models import Share, Workload, WorkloadEvent
from portal.workloads.signals import WorkloadChanged, workload_changed
from slipway.schemas.truncation import shorten
from slipway.schemas.workloads import ReasonCode, WorkloadState


def locked(workload_id: str) -> Workload | None:
    """Return the workload with its row locked until the transaction ends, or None."""
    workloads = Workload.objects.select_for_update(of=("self",), no_key=True).filter(pk=workload_id)
    return workloads.first()


def move(
    workload: Workload, target: WorkloadState, *, kind: str, message: str, **changes: Any
) -> bool:
    """Move the workload if its state is still that of `workload`. Returns whether it did.

    `kind` and `message` become a line of its history. `changes` are further columns to write.
    """
    source = workload.status
    check_move(source, target)
    here = Workload.objects.filter(pk=workload.pk, state=source, epoch=workload.epoch)
    if not here.update(state=target, **changes):
        return False
    workload.state = target
    for column, value in changes.items():
        setattr(workload, column, value)
    _count(workload, source, target)
    add_event(workload, kind=kind, message=message)
    announce(workload)
    return True


def _count(workload: Workload, source: WorkloadState, target: WorkloadState) -> None:
    queued = (target == WorkloadState.QUEUED) - (source == WorkloadState.QUEUED)
    running = (target in ACTIVE) - (source in ACTIVE)
    if queued or running:
        Share.objects.add(workload.project_id, workload.team_id, queued=queued, running=running)


def add_event(workload: Workload, *, kind: str, message: str) -> None:
    """Add an event to the history."""
    WorkloadEvent.objects.create(
        workload=workload, attempt=workload.epoch, kind=kind, message=shorten(message, 2000)
    )


def announce(workload: Workload) -> None:
    """Send the signal of a changed state, on commit."""
    workload_changed.send_on_commit(
        WorkloadChanged(
            workload.pk,
            workload.project_id,
            workload.kind,
            workload.status,
            workload.epoch,
            ReasonCode(workload.reason) if workload.reason else None,
        )
    )
