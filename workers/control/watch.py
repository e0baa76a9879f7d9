"""Watches the running tasks: their time limit, their metrics, their log context.

It touches a file periodically, as a liveness signal for a supervisor.

Threads cannot be killed, so a task over its limit ends the whole process. The supervisor starts
another, and the task's work is in database rows that are processed again.
"""

import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import structlog
from celery import signals
from prometheus_client import Counter, Histogram

log = structlog.get_logger(__name__)
TASKS = Counter("slipway_tasks_total", "Tasks that ended.", ["task", "outcome"])
SECONDS = Histogram(
    "slipway_task_seconds",
    "Seconds a task ran.",
    ["task"],
    buckets=(0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300),
)
OVER_LIMIT_STATUS = 70
_LOOK_EVERY_S = 1.0


class TaskWatch:
    """Keeps the time of every running task of this process."""

    def __init__(self, *, limit_s: float, alive_file: str = "") -> None:
        self._limit_s = limit_s
        self._alive_file = alive_file
        self._running: dict[str, tuple[str, float]] = {}

    def connect(self) -> None:
        """Follow Celery's signals and begin to watch."""
        signals.task_prerun.connect(self._begin, weak=False)
        signals.task_postrun.connect(self._end, weak=False)
        threading.Thread(target=self._watch, name="task-watch", daemon=True).start()

    def _begin(self, task_id: str, task: Any, **_: Any) -> None:
        self._running[task_id] = (task.name, time.monotonic())
        structlog.contextvars.bind_contextvars(task=task.name, task_id=task_id)

    def _end(self, task_id: str, task: Any, state: str | None = None, **_: Any) -> None:
        _, began = self._running.pop(task_id, (task.name, time.monotonic()))
        TASKS.labels(task.name, (state or "unknown").lower()).inc()
        SECONDS.labels(task.name).observe(time.monotonic() - began)
        structlog.contextvars.clear_contextvars()

    def _watch(self) -> None:
        while True:
            time.sleep(_LOOK_EVERY_S)
            self._touch_alive_file()
            for name, began in list(self._running.values()):
                lasted = time.monotonic() - began
                if lasted > self._limit_s:
                    log.error("task_over_limit", task=name, seconds=round(lasted))
                    os._exit(OVER_LIMIT_STATUS)

    def _touch_alive_file(self) -> None:
        if self._alive_file:
            with suppress(OSError):
                Path(self._alive_file).touch(mode=0o600)
