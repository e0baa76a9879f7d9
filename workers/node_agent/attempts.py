"""One attempt of a task on this node: what is known of it, on disk and in memory.

Everything that must outlive the agent is in its folder: the record (to adopt it), the journal (what
happened) and the cursors (how much of that the portal has).
"""

import json
import logging
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from slipway.schemas.agent import DesiredTask, TaskKey
from slipway.schemas.workloads import ReasonCode
from workers.launcher.atomic_files import read_json, write_atomically
from workers.launcher.journal import ENDED, FAILED, Journal, JournalEntry
from workers.launcher.launch import StateFolder, StopRequest
from workers.launcher.removal import remove_tree
from workers.node_agent.folders import NodeFolders, TaskFolder, handle_of
from workers.node_agent.notifier import Notifier

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TaskRecord:
    """Data that an agent needs to adopt an attempt. Holds no secrets."""

    task_id: str
    epoch: int
    workload_id: str
    backend: str
    first_rank: int
    procs: int
    stop_grace_s: float
    gpus: tuple[str, ...] = ()
    snapshot: str | None = None
    environment: str | None = None
    persistent_key: str = ""
    # Maximum size of a checkpoint that is copied to the portal. 0: none are copied.
    copy_limit_bytes: int = 0
    keep_failed_s: float = 0.0

    @property
    def key(self) -> TaskKey:
        """Task and epoch."""
        return TaskKey(task_id=self.task_id, epoch=self.epoch)

    @property
    def ranks(self) -> range:
        """Global numbers of the ranks this task holds."""
        return range(self.first_rank, self.first_rank + self.procs)

    @classmethod
    def of(cls, desired: DesiredTask, gpus: tuple[str, ...]) -> "TaskRecord":
        """Return the record of a task that the portal wants started. Its spec must be present."""
        spec = desired.spec
        if spec is None:
            raise ValueError("a task without a spec cannot be started")
        return cls(
            task_id=desired.task_id,
            epoch=desired.epoch,
            workload_id=desired.workload_id,
            backend=spec.backend,
            first_rank=spec.first_rank,
            procs=spec.procs,
            stop_grace_s=spec.stop_grace_s,
            gpus=gpus,
            snapshot=spec.snapshot,
            environment=spec.environment,
            persistent_key=spec.persistent_key,
            copy_limit_bytes=spec.copy_limit_bytes if spec.world_size <= spec.procs else 0,
            keep_failed_s=spec.keep_failed_s,
        )

    @classmethod
    def read(cls, path: Path) -> "TaskRecord | None":
        """The record of an earlier agent, if it is whole."""
        document = read_json(path)
        if document is None:
            return None
        try:
            return cls(**{**document, "gpus": tuple(document["gpus"])})
        except (KeyError, TypeError):
            return None

    def write(self, path: Path) -> None:
        """Write the record to disk. Raises OSError."""
        write_atomically(path, json.dumps(asdict(self)))


@dataclass
class LogCursor:
    """Position up to which the output of a rank was sent.

    The two offsets differ by skipped output.
    """

    portal: int = 0
    local: int = 0
    marker: str = ""
    resume: int = 0
    refused: bool = False


@dataclass
class Cursors:
    """Positions up to which the portal has received data of an attempt."""

    sequence: int = 0
    journal: int = 0
    usage: int = 0
    logs: dict[int, LogCursor] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> "Cursors":
        """Return the cursors of an earlier agent, or new ones: everything may be sent again."""
        document: dict[str, Any] = read_json(path) or {}
        try:
            logs = {int(rank): LogCursor(**cursor) for rank, cursor in document["logs"].items()}
            return cls(
                int(document["sequence"]), int(document["journal"]), int(document["usage"]), logs
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            return cls()

    def log(self, rank: int) -> LogCursor:
        """The cursor of one rank."""
        return self.logs.setdefault(rank, LogCursor())

    def write(self, path: Path) -> None:
        """Write the cursors to disk. On a full disk more is sent again later."""
        try:
            write_atomically(path, json.dumps(asdict(self)))
        except OSError as error:
            log.warning("cursors could not be saved: %s", error)


class Attempt:
    """One attempt, from the first request for it until it is removed from this node."""

    def __init__(self, record: TaskRecord, folder: TaskFolder) -> None:
        self.record = record
        self.folder = folder
        self.journal = Journal(StateFolder(folder.state).journal)
        self.cursors = Cursors.read(folder.cursors)
        self.desired: DesiredTask | None = None
        # False until the portal has responded: attempts of an earlier agent continue until then.
        self.known_to_portal = False
        self.stale = False
        self.finished = False
        # Set when the agent is to leave nothing behind.
        self.stop_here: StopRequest | None = None
        # Set when the task has to end because the disk runs short.
        self.disk_stop: StopRequest | None = None
        # Somebody has opened a shell in it, or is about to.
        self.has_shells = False
        # Somebody has opened the dashboard of its cluster.
        self.has_dashboard = False
        self.unwritten_end: dict[str, Any] | None = None
        self.notifier = Notifier()

    @property
    def key(self) -> TaskKey:
        """Task and epoch."""
        return self.record.key

    @property
    def handle(self) -> str:
        """Name of the attempt, also for its back end."""
        return handle_of(self.record.key)

    @property
    def is_desired(self) -> bool:
        """True if the portal lists the attempt, to run or to stop."""
        return self.desired is not None and not self.stale

    @property
    def reported(self) -> bool:
        """True if the portal has received every event, or accepts no more."""
        if self.stale:
            return True
        return self.finished and not self.unsent_events(limit=1)

    @property
    def is_kept(self) -> bool:
        """True while the task, which has failed, stays for shells. Its log is complete."""
        if not self.record.keep_failed_s:
            return False
        event = self.journal.last()
        return event is not None and event.get("kind") == FAILED

    def shim_is_alive(self) -> bool:
        """Return whether the attempt's shim still runs on this machine."""
        mark = StateFolder(self.folder.state).shim()
        return mark is not None and mark.is_alive()

    def unsent_events(self, *, limit: int) -> list[JournalEntry]:
        """Events the portal does not have yet, in order."""
        entries = self.journal.read(self.cursors.journal, limit=limit)
        if not entries and self.unwritten_end is not None:
            return [JournalEntry(self.unwritten_end, self.cursors.journal)]
        return entries

    def end(self, reason: ReasonCode, message: str, **fields: Any) -> None:
        """Record the end, unless it is recorded already. On a full disk keep it in memory."""
        event = {"reason": reason.value, "message": message, **fields}
        try:
            self.journal.append(ENDED, **event)
        except OSError as error:
            log.warning("the end of %s could not be written: %s", self.handle, error)
            now_ms = time.time_ns() // 1_000_000
            self.unwritten_end = {"kind": ENDED, "at_unix_ms": now_ms, **event}

    def save_cursors(self) -> None:
        """Write the cursors to disk, if the attempt still has a folder."""
        if self.folder.path.is_dir():
            self.cursors.write(self.folder.cursors)


class AttemptTable:
    """All attempts on this node, by task and epoch."""

    def __init__(self, folders: NodeFolders) -> None:
        self._folders = folders
        self._attempts: dict[str, Attempt] = {}

    def __iter__(self) -> Iterator[Attempt]:
        return iter(list(self._attempts.values()))

    def find(self, key: TaskKey) -> Attempt | None:
        """The attempt, if it is here."""
        return self._attempts.get(handle_of(key))

    def add(self, attempt: Attempt) -> None:
        """Add an attempt."""
        self._attempts[attempt.handle] = attempt

    def discard(self, attempt: Attempt) -> None:
        """Remove an attempt that has nothing left on this node."""
        self._attempts.pop(attempt.handle, None)

    def load_leftover(self) -> list[Attempt]:
        """Return the attempts that an earlier agent left on disk, and remove incomplete ones."""
        attempts: list[Attempt] = []
        for path in sorted(self._folders.tasks.iterdir()):
            folder = TaskFolder(path)
            record = TaskRecord.read(folder.record)
            if record is not None and handle_of(record.key) == path.name:
                attempts.append(Attempt(record, folder))
            else:
                remove_tree(path)
        return attempts

    def predecessors(self, attempt: Attempt) -> list[Attempt]:
        """Attempts of the same task with a lower epoch that are not finished."""
        return [
            other
            for other in self._attempts.values()
            if other.record.task_id == attempt.record.task_id
            and other.record.epoch < attempt.record.epoch
            and not other.finished
        ]

    def gpus_in_use(self) -> set[str]:
        """Cards that unfinished attempts hold."""
        return {
            gpu
            for attempt in self._attempts.values()
            if not attempt.finished
            for gpu in attempt.record.gpus
        }

    def notify(self) -> None:
        """Notify all waiters of a possible change."""
        for attempt in self._attempts.values():
            attempt.notifier.notify()
