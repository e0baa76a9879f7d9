"""Retry decisions after an end, and the message for the person. No Django, no I/O."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from slipway.schemas.workloads import ReasonCode

_R = ReasonCode
# Not the workload's fault: the machine under it went away.
LOSSES = frozenset({_R.NODE_LOST, _R.FENCED})
# Ends within this long of the first one count as simultaneous: clocks of nodes are mapped to ours
# with the error of one request.
_SIMULTANEOUS = timedelta(milliseconds=500)
# Among simultaneous ends the first in this order is the cause. A plain exit status comes late,
# because tasks exit with one when they lose a peer.
_CAUSES = (
    _R.NODE_LOST,
    _R.FENCED,
    _R.OUT_OF_MEMORY,
    _R.OUT_OF_GPU_MEMORY,
    _R.DISK_FULL,
    _R.HANG,
    _R.WORLD_SIZE,
    _R.IMPORT_ERROR,
    _R.ENVIRONMENT_FAILED,
    _R.START_FAILED,
    _R.SIGNAL,
    _R.EXIT,
    _R.PREEMPTED,
    _R.MAX_LIFETIME,
    _R.IDLE,
    _R.BUDGET,
    _R.EARLY_STOP,
    _R.USER,
    _R.PEER_FAILED,
    _R.COMPLETED,
)
NEXT_STEPS = {
    _R.OUT_OF_MEMORY: "Choose a tier with more memory, or a smaller batch.",
    _R.OUT_OF_GPU_MEMORY: "Choose a GPU with more memory, a smaller batch, or a sharded strategy.",
    _R.IMPORT_ERROR: "Add the package to requirements.txt and submit again.",
    _R.WORLD_SIZE: "Set nodes times processes to the world size that the script expects.",
    _R.DISK_FULL: (
        "Delete unneeded files and store large results as datasets or artifacts, or ask an "
        "administrator for a higher disk limit on the node."
    ),
    _R.HANG: "Read the stack traces in the log: they show where each rank is waiting.",
    _R.ENVIRONMENT_FAILED: "Read the build log, on the page of the job or with `slipway job logs`.",
    _R.PEER_FAILED: "Check the logs of the other ranks and the network between the nodes.",
    _R.START_FAILED: "Try again. If it happens again, ask an administrator to check the node.",
    _R.EXIT: "Read the last lines of the log, fix the script and submit again.",
    _R.SIGNAL: "Read the log. If it does not show the cause, the machine may be short of memory.",
    _R.NODE_LOST: "Submit again; existing checkpoints are still there.",
    _R.FENCED: "Submit again; existing checkpoints are still there.",
    _R.BUDGET: "Raise the budget, then resume it.",
    _R.MAX_LIFETIME: "Submit again with a longer maximum lifetime.",
    _R.IDLE: "Start it again when you need it.",
}


@dataclass(frozen=True)
class RetryRule:
    """Limits on retries of a workload. `max_attempts` counts ends that are its own fault."""

    max_attempts: int = 1
    max_losses: int = 10
    on: frozenset[ReasonCode] = frozenset(
        {_R.NODE_LOST, _R.FENCED, _R.PEER_FAILED, _R.SIGNAL, _R.START_FAILED}
    )

    def allows(self, reason: ReasonCode, *, failures: int, losses: int) -> bool:
        """Return True if it may run again after `reason`, which the two counts include already."""
        if reason not in self.on:
            return False
        if reason in LOSSES:
            return losses <= self.max_losses
        return failures < self.max_attempts


@dataclass(frozen=True)
class TaskEnd:
    """End of one task of a gang, by the portal's clock."""

    index: int
    reason: ReasonCode
    ended_at: datetime
    exit_code: int | None
    message: str


def root_cause(ends: Sequence[TaskEnd]) -> TaskEnd:
    """Return the end that brought the others about.

    A lost machine explains everything. Otherwise it is the earliest end that is no success, and of
    ends at the same moment the one that says most.
    """
    bad = [end for end in ends if end.reason != _R.COMPLETED] or list(ends)
    lost = [end for end in bad if end.reason in LOSSES]
    if lost:
        return min(lost, key=_sort_key)
    own = [end for end in bad if end.reason != _R.PEER_FAILED] or bad
    first = min(end.ended_at for end in own)
    return min((end for end in own if end.ended_at - first <= _SIMULTANEOUS), key=_sort_key)


def _sort_key(end: TaskEnd) -> tuple[int, datetime, int]:
    return _CAUSES.index(end.reason), end.ended_at, end.index
