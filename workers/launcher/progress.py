"""How far the ranks of a task have come, as its journal tells it: seldom enough to be read."""

from collections.abc import Callable
from typing import Any, Final

from workers.launcher.contact import Saved, Step, Strategy
from workers.launcher.processes import uptime_s

_STEP_EVERY_S: Final = 2.0
_CHECKPOINT_EVERY_S: Final = 0.2


class Progress:
    """Hears ranks and notes their news: the first step at once, later ones every other second.

    Ranks are user code and may speak as often as they like. Of checkpoints that follow each other
    faster than five a second only the newest is noted, of strategies only the first that is told.
    """

    def __init__(self, note: Callable[[dict[str, Any]], None]) -> None:
        """`note` is given the fields of each event of the kind `progress`."""
        self._note = note
        self._step = self._noted_step = 0
        self._noted_at_s = self._saved_at_s = 0.0
        self._saved: Saved | None = None
        self._has_strategy = False

    def hear(self, news: Step | Saved | Strategy) -> None:
        """Take in what a rank told."""
        if isinstance(news, Step):
            first = self._step == 0
            self._step = max(self._step, news.step)
            if first or uptime_s() - self._noted_at_s >= _STEP_EVERY_S:
                self._note_step({})
        elif isinstance(news, Saved):
            self._saved = news
            self.look()
        elif not self._has_strategy:
            self._has_strategy = True
            self._note({"strategy": {"word": news.word, "reason": news.reason}})

    def look(self) -> None:
        """Note a checkpoint that had to wait; called now and then."""
        if self._saved is not None and uptime_s() - self._saved_at_s >= _CHECKPOINT_EVERY_S:
            self._note_checkpoint()

    def finish(self) -> None:
        """Note what is not noted yet: the task has ended."""
        if self._saved is not None:
            self._note_checkpoint()
        if self._step > self._noted_step:
            self._note_step({})

    def _note_checkpoint(self) -> None:
        saved, self._saved = self._saved, None
        if saved is not None:
            self._saved_at_s = uptime_s()
            self._step = max(self._step, saved.step)
            body = {"step": saved.step, "size_bytes": saved.size_bytes, "kept": list(saved.kept)}
            self._note_step({"checkpoint": body})

    def _note_step(self, more: dict[str, Any]) -> None:
        self._noted_step = self._step
        self._noted_at_s = uptime_s()
        self._note({"step": self._step, **more})
