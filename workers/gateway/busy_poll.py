"""Staying awake for who asks again at once.

A processor that falls asleep between two predictions wakes up late and with empty caches: in a
virtual machine, where sleeping hands it to somebody else, a small model then takes twice as long.
So after an answer the loop looks for the next request without sleeping, for as long as Linux's own
`haltpoll` would (https://docs.kernel.org/virt/guest-halt-polling.html), and only where the request
before came that soon, too. Who takes longer to ask again costs nothing. While the shipper works it
does sleep: what wakes up takes the processor from the shipper at once, and what is awake must wait
until the kernel's clock ticks.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

LIMIT_S: Final = 0.0002


class BusyPoll:
    """Keeps the loop awake between requests that follow each other closely.

    Moments are those of `time.monotonic()`. `is_idle` says whether no prediction is under way
    anywhere: a replica may need the processor.
    """

    def __init__(self, is_idle: Callable[[], bool]) -> None:
        self._is_idle = is_idle
        self._loop = asyncio.get_running_loop()
        self.answered_at = 0.0
        self._until = 0.0
        self._is_worth_it = False
        self.is_awake = False
        self.is_shipping = False

    def asked(self, at: float) -> None:
        """A request came to an endpoint that had none under way."""
        self._is_worth_it = at - self.answered_at < LIMIT_S
        self._until = 0.0

    def answered(self) -> None:
        """An endpoint has none under way any more."""
        self.answered_at = now = time.monotonic()
        if self._is_worth_it and not self.is_shipping and self._is_idle():
            self._until = now + LIMIT_S
            if not self.is_awake:
                self.is_awake = True
                self._loop.call_soon(self._look)

    def _look(self) -> None:
        # The loop looks at its sockets once between two calls, and does not wait for them.
        if time.monotonic() < self._until and not self.is_shipping:
            self._loop.call_soon(self._look)
        else:
            self.is_awake = False
