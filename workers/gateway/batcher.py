"""Batches requests on their way to a model.

Requests that are read in one iteration of the event loop form a batch. Clients that send at the
same time often arrive in several iterations, though: some send while the requests of others are
read, and each batch costs gateway and model the same, whatever its size. So the loop polls its
sockets again, without waiting, for as long as each poll yields another request.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from workers.gateway.request import Prediction

LONGEST_S: Final = 0.001


class FrameBatcher:
    """Collects predictions that arrive without a pause, up to `LONGEST_S`, into one batch."""

    def __init__(self, send: Callable[[list[Prediction]], None]) -> None:
        self.last = 1
        self._send = send
        self._held: list[Prediction] = []
        self._seen = 0
        self._loop = asyncio.get_running_loop()

    def add(self, pending: Prediction) -> None:
        """Add a prediction to the present batch."""
        self._held.append(pending)
        if len(self._held) == 1:
            self._loop.call_soon(self._poll)

    def _poll(self) -> None:
        # The loop polls its sockets once between two calls.
        held = self._held
        if self._seen < len(held) and held[-1].since - held[0].since < LONGEST_S:
            self._seen = len(held)
            self._loop.call_soon(self._poll)
            return
        self._held, self._seen = [], 0
        self.last = len(held)
        self._send(held)
