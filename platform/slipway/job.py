"""Inside a job: what it is, how far it has come, and whether it should stop now.

    >>> from slipway import job

    >>> me = job.current()
    >>> for step in range(start, steps + 1):
    ...     train_one_step()
    ...     job.report_step(step)
    ...     if job.should_stop():
    ...         save(me.checkpoint_dir)
    ...         break

Everywhere else, on a laptop or under torchrun, the same script runs unchanged: `current` tells what
the environment says, and the rest does nothing. Standard library only, cheap at every step.
"""

import atexit
import contextlib
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Any

__all__ = ["Job", "current", "report_step", "should_stop"]

SOCKET_VARIABLE = "SLIPWAY_TASK_SOCKET"
_BETWEEN_REPORTS_S = 0.05
_Handler = Callable[[int, FrameType | None], object]


@dataclass(frozen=True)
class Job:
    """Job from the view of one of its processes. Outside Slipway, a job of this process alone.

    `attempt` counts from 1. `params` are those it was submitted with, as text. `datasets` are the
    versions it reads, such as `digits:3`. `checkpoint_dir` is the folder that outlives an attempt,
    None outside Slipway. `project` is a slug. `scheduled_for` is the time of the schedule that the
    job is for, None without a schedule. `event` is what has started it, if a trigger did.
    """

    id: str | None = None
    project: str | None = None
    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    attempt: int = 1
    params: Mapping[str, str] = field(default_factory=dict)
    strategy: str | None = None
    datasets: Sequence[str] = ()
    checkpoint_dir: Path | None = None
    scheduled_for: datetime | None = None
    event: Mapping[str, Any] | None = None

    @property
    def is_slipway(self) -> bool:
        """True if Slipway started this process."""
        return self.id is not None

    @property
    def is_first(self) -> bool:
        """True if this is rank 0, which writes what is written once per job."""
        return self.rank == 0


def current() -> Job:
    """Return the job this process belongs to, read from its environment now."""
    environ = os.environ
    # Read at each call: a warm process imports this long before it becomes a rank of a job.
    job_id = environ.get("SLIPWAY_WORKLOAD") or None
    return Job(
        id=job_id,
        project=environ.get("SLIPWAY_PROJECT") if job_id else None,
        rank=_number("RANK", 0),
        world_size=max(1, _number("WORLD_SIZE", 1)),
        local_rank=_number("LOCAL_RANK", 0),
        attempt=_number("SLIPWAY_ATTEMPT", _number("TORCHELASTIC_RESTART_COUNT", 0) + 1),
        params=_params(environ.get("SLIPWAY_PARAMS", "")),
        strategy=environ.get("SLIPWAY_STRATEGY") or None,
        datasets=tuple(
            slipway_dataset
            for slipway_dataset in environ.get("SLIPWAY_DATASETS", "").split(",")
            if slipway_dataset
        ),
        checkpoint_dir=_checkpoint_dir(environ),
        scheduled_for=_time(environ.get("SLIPWAY_SCHEDULED_FOR", "")),
        event=_event(environ.get("SLIPWAY_EVENT", "")),
    )


def report_step(step: int) -> None:
    """Report that optimisation step `step` (the first is 1) is done.

    Slipway shows it, takes the time to the first one, and knows by it that the job does not hang.
    It never blocks and never raises: what nobody listens to is dropped, and of many a second only
    some are sent, always including the last.
    """
    _reporter.report(step)


def should_stop() -> bool:
    """Return whether this process was asked to stop (SIGTERM): save a checkpoint and end.

    Slipway sends SIGTERM before a job is cancelled, preempted or moved, and kills after a grace
    period of seconds. Until the first call SIGTERM keeps its former effect. Make that call from the
    main thread.
    """
    return _stopping.is_requested()


class _Reporter:
    """Reports steps through the task's socket, at most twenty a second."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Reset the state, as a forked process must: it is another rank, or none."""
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._sent_at = float("-inf")
        self._unsent: int | None = None
        self._has_farewell = False

    def report(self, step: int) -> None:
        """Report a step, now or at the end. See `report_step`."""
        path = os.environ.get(SOCKET_VARIABLE)
        if path is None:
            return
        with self._lock:
            now = time.monotonic()
            if now - self._sent_at < _BETWEEN_REPORTS_S:
                self._unsent = step
                if not self._has_farewell:
                    self._has_farewell = True
                    atexit.register(self.flush)
                return
            self._sent_at = now
            self._unsent = None
            self._send(path, step)

    def flush(self) -> None:
        """Report the last step, which came too soon after the one before, as the process ends."""
        path = os.environ.get(SOCKET_VARIABLE)
        if path is not None and self._unsent is not None:
            self._send(path, self._unsent)
            self._unsent = None

    def _send(self, path: str, step: int) -> None:
        with contextlib.suppress(OSError, ValueError, TypeError):
            if self._socket is None:
                self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                self._socket.setblocking(False)
            message = {"step": int(step), "rank": _number("RANK", 0)}
            self._socket.sendto(json.dumps(message).encode(), path)


class _Stopping:
    """Records SIGTERM from the first call on. An earlier handler is called too."""

    def __init__(self) -> None:
        self._requested = False
        self._listens = False
        self._before: _Handler | int | None = None

    def reset(self) -> None:
        """Forget a stop request that was for the process this one was forked from."""
        self._requested = False

    def is_requested(self) -> bool:
        """Return whether SIGTERM came. The first call in the main thread sets the handler."""
        if not self._listens and threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTERM, self._on_signal)
            self._listens = True
        return self._requested

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._requested = True
        if callable(self._before):
            self._before(number, frame)


def _number(name: str, default: int) -> int:
    try:
        return int(os.environ[name])
    except (KeyError, ValueError):
        return default


def _time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _event(text: str) -> Mapping[str, Any] | None:
    try:
        event = json.loads(text)
    except ValueError:
        return None
    return event if isinstance(event, dict) else None


def _params(text: str) -> dict[str, str]:
    try:
        document = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    return (
        {str(name): str(value) for name, value in document.items()}
        if isinstance(document, dict)
        else {}
    )


def _checkpoint_dir(values: Mapping[str, str]) -> Path | None:
    folder = values.get("SLIPWAY_CHECKPOINT_DIR")
    if folder:
        return Path(folder)
    persistent = values.get("SLIPWAY_PERSISTENT_DIR")
    return Path(persistent) / "checkpoints" if persistent else None


_reporter = _Reporter()
_stopping = _Stopping()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reporter.reset)
    os.register_at_fork(after_in_child=_stopping.reset)
