"""Domain signals: events for higher apps, without an import of them.

A lower app declares `project_changed = DomainSignal[ProjectChanged]()` and calls
`project_changed.send_on_commit(...)` inside its transaction. A higher app connects in
its `wiring.py`. Receivers run after the commit, in the process that committed. One that raises
is logged and does not stop the others, because the fact is already in the database.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

import structlog
from django.db import transaction

log = structlog.get_logger(__name__)
News = TypeVar("News")


class DomainSignal(Generic[News]):
    """A list of receivers for one kind of event (a frozen dataclass)."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._receivers: list[Callable[[News], None]] = []

    def connect(self, receiver: Callable[[News], None]) -> None:
        """Add a receiver. Connecting the same one again changes nothing."""
        if receiver not in self._receivers:
            self._receivers.append(receiver)

    def disconnect(self, receiver: Callable[[News], None]) -> None:
        """Remove a receiver. An unknown one is ignored."""
        if receiver in self._receivers:
            self._receivers.remove(receiver)

    def send_on_commit(self, news: News) -> None:
        """Deliver `news` once the surrounding transaction has committed (now, if there is none)."""
        transaction.on_commit(lambda: self._deliver(news))

    def _deliver(self, news: News) -> None:
        for receiver in list(self._receivers):
            try:
                receiver(news)
            except Exception:
                log.exception("signal_receiver_failed", signal=self.name, receiver=str(receiver))
