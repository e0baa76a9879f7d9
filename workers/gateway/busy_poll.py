"""Busy-polls briefly after a response (cf. Linux haltpoll).

A processor that sleeps between two predictions wakes up late and with empty caches. In a virtual
machine, where sleeping yields it to others, a small model then takes twice as long. So after a
response the loop polls for the next request without sleeping, for as long as Linux's own `haltpoll`
would (https://docs.kernel.org/virt/guest-halt-polling.html), and only if the previous request came
that soon, too. Slower clients cost nothing. While the shipper works the loop does sleep: a thread
that wakes up preempts the shipper immediately, but a thread that is awake must wait for the
kernel's next clock tick.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

LIMIT_S: Final = 0.0002


class BusyPoll:
    """Keeps the loop awake between requests that follow each other closely.

    Times are those of `time.monotonic()`. `is_idle` returns whether no prediction is in progress at
    any endpoint: a replica may need the processor.
    """

    def __init__(self, is_idle: Callable[[], bool]) -> None:
        self._is_idle = is_idle
        self._loop = asyncio.get_running_loop()
        self.answered_at = 0.0
        self._until = 0.0
        self._is_worth_it = False
        self.is_awake = False
        self.is_shipping = False

    def request_started(self, at: float) -> None:
        """Note a request to an endpoint that had none in progress."""
        self._is_worth_it = at - self.answered_at < LIMIT_S
        self._until = 0.0

    def requests_finished(self) -> None:
        """Note that an endpoint has no more requests in progress."""
        self.answered_at = now = time.monotonic()
        if self._is_worth_it and not self.is_shipping and self._is_idle():
            self._until = now + LIMIT_S
            if not self.is_awake:
                self.is_awake = True
                self._loop.call_soon(self._poll)

    def _poll(self) -> None:
        # The loop polls its sockets once between two calls, without waiting.
        if time.monotonic() < self._until and not self.is_shipping:
            self._loop.call_soon(self._poll)
        else:
            self.is_awake = False
