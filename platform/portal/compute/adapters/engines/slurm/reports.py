"""The states and reasons of Slurm, as reports on allocations."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from portal.compute.engines import AllocationPhase, AllocationReport, EndCause

# The number of a job, with the index of an element of an array.
HANDLE: Final = re.compile(r"[0-9]{1,18}(_[0-9]{1,7})?")
_WAITING: Final = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "RESV_DEL_HOLD"})
_GRANTED: Final = frozenset({"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "STAGE_OUT"})
_CAUSES: Final[Mapping[str, EndCause]] = {
    "COMPLETED": EndCause.FINISHED,
    "CANCELLED": EndCause.CANCELLED,
    "PREEMPTED": EndCause.PREEMPTED,
    "TIMEOUT": EndCause.TIME_LIMIT,
    "DEADLINE": EndCause.TIME_LIMIT,
    "NODE_FAIL": EndCause.NODE_FAILED,
    "BOOT_FAIL": EndCause.NODE_FAILED,
    "REVOKED": EndCause.NODE_FAILED,
    "OUT_OF_MEMORY": EndCause.OUT_OF_MEMORY,
    "FAILED": EndCause.FAILED,
}
# The signal is sent 30 s before the limit, and Slurm looks at limits now and then.
_SIGNAL_BEFORE_S: Final = 45
# Meaning of Slurm's reasons for the person who waits:
# https://slurm.schedmd.com/job_reason_codes.html
_REASONS: Final[Mapping[str, str]] = {
    "Priority": "jobs with a higher priority are ahead",
    "Resources": "it is next, and waits until enough is free",
    "QOSMaxJobsPerUserLimit": "its owner runs as many jobs as the QoS allows",
    "AssocGrpCpuLimit": "its account uses as many CPUs as it may at once",
    "AssocGrpCPUMinutesLimit": "its account has used up its CPU time",
    "AssocGrpGRES": "its account uses as many GPUs as it may at once",
    "AssocMaxJobsLimit": "its owner runs as many jobs as the account allows",
    "PartitionTimeLimit": "its time limit is above that of the partition, so it never starts",
    "PartitionNodeLimit": "it needs more nodes than the partition allows, so it never starts",
    "PartitionDown": "the partition is down",
    "ReqNodeNotAvail": "nodes that it needs are not available",
    "BeginTime": "Slurm waits before it starts it again",
    "Dependency": "it waits for another job",
    "JobHeldAdmin": "an administrator of Slurm holds it",
    "JobHeldUser": "its owner holds it in Slurm",
    "Reservation": "it waits for its reservation",
}
_TEMPORARY: Final = (
    "unable to contact slurm controller",
    "socket timed out",
    "connection refused",
    "slurm_load_jobs error",
    "temporarily",
    "a password is required",
    "zero bytes were transmitted",
    "protocol authentication error",
    "unspecified error",
)

_FULL: Final = re.compile(r"\b(?:Assoc|QOS)\w*Submit\w*")


@dataclass(frozen=True)
class JobLine:
    """A job of Slurm, as squeue, sacct or slurmrestd tells of it.

    `ends_at` is when a job that runs reaches its time limit, None if it has none.
    """

    handle: str
    state: str
    reason: str
    elapsed_s: int = 0
    # 0 where it has none, or none is known.
    limit_s: int = 0
    name: str = ""
    ends_at: datetime | None = None

    @property
    def has_reached_limit(self) -> bool:
        """True if it ended when its time limit was near: its agents leave before Slurm ends it."""
        return bool(self.limit_s) and self.elapsed_s >= self.limit_s - _SIGNAL_BEFORE_S


def report_on(line: JobLine) -> AllocationReport:
    """Return the report on the allocation that a job is."""
    if line.state in _WAITING:
        meaning = _REASONS.get(line.reason, "")
        detail = f"{line.reason} ({meaning})" if meaning else line.reason
        return AllocationReport(AllocationPhase.WAITING, "" if detail == "None" else detail)
    if line.state in _GRANTED:
        return AllocationReport(AllocationPhase.GRANTED, ends_at=line.ends_at)
    cause = _CAUSES.get(line.state, EndCause.FAILED)
    if cause in (EndCause.FINISHED, EndCause.FAILED) and line.has_reached_limit:
        cause = EndCause.TIME_LIMIT
    detail = "" if line.reason in ("None", "") else line.reason
    return AllocationReport(AllocationPhase.ENDED, f"{line.state} {detail}".strip(), cause)


def cancelled_while_waiting() -> AllocationReport:
    """Return the report on an element of an array that Slurm forgot, and not the others.

    It forgets elements that are cancelled before they have started.
    """
    return AllocationReport(AllocationPhase.ENDED, "CANCELLED before its start", EndCause.CANCELLED)


def full_reason(text: str) -> str:
    """Return the limit on submitted jobs that an error of sbatch names, "" if it names none."""
    match = _FULL.search(text)
    return f"{match[0]} (its owner has as many jobs in Slurm as allowed)" if match else ""


def is_over(state: str) -> bool:
    """Return True for the state of a job that has ended."""
    return state not in _WAITING and state not in _GRANTED


def is_temporary(text: str) -> bool:
    """Return True for an error that says nothing about the order: it may be repeated."""
    return any(phrase in text.lower() for phrase in _TEMPORARY)
