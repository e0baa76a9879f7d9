"""Progress of the ranks of a task, throttled for its journal."""

from collections.abc import Callable
from typing import Any, Final

from workers.launcher.processes import uptime_s
from workers.launcher.task_socket import CheckpointSaved, OptimizerStep, Strategy

_STEP_EVERY_S: Final = 2.0
_CHECKPOINT_EVERY_S: Final = 0.2
_MOST_WAITING: Final = 16


class RankProgress:
    """Records progress of ranks: the first step at once, later ones every other second.

    Ranks are user code and may report at any rate. Checkpoints are recorded at most five times a
    second, then all that arrived meanwhile and still exist (the newest 16 of a flood). Of
    strategies only the first one is recorded.
    """

    def __init__(self, note: Callable[[dict[str, Any]], None]) -> None:
        """`note` is given the fields of each event of the kind `progress`."""
        self._note = note
        self._step = self._noted_step = 0
        self._noted_at_s = self._saved_at_s = 0.0
        self._saved: dict[int, CheckpointSaved] = {}
        self._has_strategy = False

    def process(self, news: OptimizerStep | CheckpointSaved | Strategy) -> None:
        """Process a report of a rank."""
        if isinstance(news, OptimizerStep):
            first = self._step == 0
            self._step = max(self._step, news.step)
            if first or uptime_s() - self._noted_at_s >= _STEP_EVERY_S:
                self._note_step({})
        elif isinstance(news, CheckpointSaved):
            self._wait(news)
            self.flush_due()
        elif not self._has_strategy:
            self._has_strategy = True
            self._note({"strategy": {"word": news.word, "reason": news.reason}})

    def flush_due(self) -> None:
        """Record delayed checkpoints that are due. Called periodically."""
        if self._saved and uptime_s() - self._saved_at_s >= _CHECKPOINT_EVERY_S:
            self._note_checkpoints()

    def finish(self) -> None:
        """Note what is not noted yet: the task has ended."""
        self._note_checkpoints()
        if self._step > self._noted_step:
            self._note_step({})

    def _wait(self, news: CheckpointSaved) -> None:
        """Queue a checkpoint, and drop queued ones that no longer exist."""
        if news.kept:
            self._saved = {step: saved for step, saved in self._saved.items() if step in news.kept}
        self._saved.pop(news.step, None)
        self._saved[news.step] = news
        if len(self._saved) > _MOST_WAITING:
            del self._saved[next(iter(self._saved))]

    def _note_checkpoints(self) -> None:
        waiting, self._saved = self._saved, {}
        for saved in waiting.values():
            self._saved_at_s = uptime_s()
            self._step = max(self._step, saved.step)
            body = {"step": saved.step, "size_bytes": saved.size_bytes, "kept": list(saved.kept)}
            self._note_step({"checkpoint": body})

    def _note_step(self, more: dict[str, Any]) -> None:
        self._noted_step = self._step
        self._noted_at_s = uptime_s()
        self._note({"step": self._step, **more})
