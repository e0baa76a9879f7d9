"""Logs of ranks: appended by agents, read in ranges by people, in constant memory."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta

from portal.compute.logs import log_store
from portal.compute.models import Node
from portal.core import clock
from portal.core.errors import Conflict, NotFound, TooLarge
from portal.workloads.models import Lease, Workload
from portal.workloads.silence import is_worth_noting, note_activity
from slipway.schemas.workloads import ReasonCode

MAX_APPEND_BYTES = 8 * 1024**2
MAX_LOG_BYTES = 16 * 1024**3
MOST_LEASES = 1000
# An agent reports that it has sent the last byte. If it died before, a log is complete after this.
_LAST_WORD = timedelta(seconds=30)
_NEVER_RAN = frozenset({ReasonCode.START_FAILED, ReasonCode.ENVIRONMENT_FAILED})


@dataclass(frozen=True)
class RankLog:
    """The log of one rank of one attempt. `is_complete` says that nothing will be added."""

    attempt: int
    rank: int
    size_bytes: int
    is_complete: bool


def _key(lease: Lease, rank: int) -> str:
    return f"workloads/{lease.workload_id}/{lease.epoch}.{rank}.log"


def _end_key(lease: Lease, rank: int) -> str:
    """Return the key of the marker that exists once the log has been sent to its last byte."""
    return f"workloads/{lease.workload_id}/{lease.epoch}.{rank}.end"


def append_log(
    *,
    node: Node,
    task_id: str,
    epoch: int,
    rank: int,
    offset: int,
    pieces: Iterable[bytes],
    is_last: bool = False,
) -> int:
    """Append bytes of a rank's log at `offset`. Returns the offset to send on from.

    What is there already is skipped, what would leave a gap is not taken, so repeating is harmless.
    `is_last` comes without bytes and says that the log ends at `offset`. It is believed when it
    does.
    Raises Conflict (`stale_epoch`) when the task is not this node's, or was given up as lost.
    """
    lease = (
        Lease.objects.filter(node=node, task_id=task_id, epoch=epoch)
        .select_related("workload")
        .first()
    )
    if lease is None or lease.reason == ReasonCode.NODE_LOST:
        raise Conflict(
            "This node no longer holds a lease on that task and epoch.",
            code="stale_epoch",
            next_step="Stop the task; it was assigned to another node.",
        )
    first = lease.index * lease.workload.procs
    if not first <= rank < first + lease.workload.procs:
        raise NotFound
    if offset >= MAX_LOG_BYTES and not is_last:
        raise TooLarge(
            f"The log of this rank has reached {MAX_LOG_BYTES // 1024**3} GiB.",
            code="log_full",
            next_step="Stop sending it.",
        )
    end = _append(_key(lease, rank), offset, pieces)
    timestamp = clock.now()
    if end > offset and is_worth_noting(lease.active_at, timestamp):
        note_activity([lease.pk], timestamp)
    if is_last and end == offset:
        log_store().append(_end_key(lease, rank), 0, b".")
    return end


def _append(key: str, offset: int, pieces: Iterable[bytes]) -> int:
    store = log_store()
    begun = offset
    size = store.size(key)
    for piece in pieces:
        if offset + len(piece) - begun > MAX_APPEND_BYTES:
            raise TooLarge(
                f"More than {MAX_APPEND_BYTES // 1024**2} MiB at once.",
                next_step="Send the log in smaller pieces.",
            )
        size = store.append(key, offset, piece)
        offset += len(piece)
        if size < offset:  # a gap before this piece: the rest cannot be appended either
            break
    return size


def tasks_without_logs(*, workload: Workload) -> int:
    """Count the tasks of earlier attempts whose logs `logs_of` does not list."""
    return max(0, Lease.objects.filter(workload=workload).count() - MOST_LEASES)


def logs_of(*, workload: Workload) -> list[RankLog]:
    """Return the logs of the newest `MOST_LEASES` tasks, newest attempt first."""
    leases = Lease.objects.filter(workload=workload).order_by("-epoch", "index")
    store = log_store()
    return [
        RankLog(lease.epoch, rank, size, _is_complete(lease, rank))
        for lease in leases[:MOST_LEASES]
        for rank in _ranks_of(lease, workload)
        if (size := store.size(_key(lease, rank))) or lease.is_open
    ]


def ranks_with_logs(*, workload: Workload, leases: Iterable[Lease]) -> list[int]:
    """Return the ranks that have written something in any attempt, or may be about to.

    `leases` are those of the workload, which the caller has read already.
    """
    store = log_store()
    items: set[int] = set()
    for lease in list(leases)[:MOST_LEASES]:
        for rank in _ranks_of(lease, workload):
            if rank not in items and (lease.is_open or store.size(_key(lease, rank))):
                items.add(rank)
    return sorted(items)


@dataclass(frozen=True)
class LogLocation:
    """Location of the log of one rank of one attempt. See `RankLog` for `is_complete`."""

    attempt: int
    rank: int
    key: str
    is_complete: bool

    def size_bytes(self) -> int:
        """Return the current size, without a database query."""
        return log_store().size(self.key)

    def read(self, start: int, length: int) -> bytes:
        """Return a range of the log, shorter at its end, without a database query."""
        return b"".join(log_store().read(self.key, start, length))


def log_locations(
    *,
    workload: Workload,
    rank: int | None = None,
    attempt: int | None = None,
    beyond_attempt: int = 0,
    most_ranks: int,
) -> list[LogLocation]:
    """Return the logs of a workload, oldest attempt first: of all ranks below a number, or of one.

    `beyond_attempt` leaves out earlier ones.
    """
    leases = Lease.objects.filter(workload=workload, epoch__gt=beyond_attempt)
    if attempt is not None:
        leases = leases.filter(epoch=attempt)
    if rank is not None:
        leases = leases.filter(index=rank // workload.procs)
    else:
        leases = leases.filter(index__lt=-(-most_ranks // workload.procs))
    return [
        LogLocation(lease.epoch, number, _key(lease, number), _is_complete(lease, number))
        for lease in leases.order_by("epoch", "index")
        for number in _ranks_of(lease, workload)
        if number == rank or (rank is None and number < most_ranks)
    ]


def log_of(*, workload: Workload, attempt: int, rank: int) -> RankLog:
    """Return how far one log has come. Raises NotFound if there is no such attempt or rank."""
    lease = _lease(workload, attempt, rank)
    # Check for completeness before reading the size, so that a complete log is never cut short.
    is_complete = _is_complete(lease, rank)
    return RankLog(attempt, rank, log_store().size(_key(lease, rank)), is_complete)


def read_log(
    *, workload: Workload, attempt: int, rank: int, start: int, length: int
) -> Iterator[bytes]:
    """Yield a range of a log in pieces. Raises NotFound if there is no such attempt or rank."""
    return log_store().read(_key(_lease(workload, attempt, rank), rank), start, length)


def _is_complete(lease: Lease, rank: int) -> bool:
    """Return True if nothing will be added to the log of a rank."""
    ended_at = lease.failed_at or lease.ended_at
    if ended_at is None:
        return False
    if lease.reason == ReasonCode.NODE_LOST:  # later reports of its agent are refused
        return True
    if lease.started_at is None and lease.reason in _NEVER_RAN:
        return True
    is_told = log_store().size(_end_key(lease, rank)) > 0
    return is_told or clock.now() - ended_at > _LAST_WORD


def _ranks_of(lease: Lease, workload: Workload) -> range:
    return range(lease.index * workload.procs, (lease.index + 1) * workload.procs)


def _lease(workload: Workload, attempt: int, rank: int) -> Lease:
    leases = Lease.objects.filter(
        workload=workload, epoch=attempt, index=rank // max(1, workload.procs)
    )
    lease = leases.first()
    if lease is None or rank < 0:
        raise NotFound
    return lease
