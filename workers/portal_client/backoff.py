"""Exponential backoff with jitter, so that agents do not retry in step."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from workers.portal_client.client import PortalUnreachable

Answer = TypeVar("Answer")
log = logging.getLogger(__name__)
_FIRST_S: Final = 0.2
_LONGEST_S: Final = 10.0
_random = random.SystemRandom()


class Backoff:
    """Growing pauses between attempts, back to the first after a success."""

    def __init__(self, *, first_s: float = _FIRST_S, longest_s: float = _LONGEST_S) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._next_s = first_s

    def reset(self) -> None:
        """After a success."""
        self._next_s = self._first_s

    def pause_s(self) -> float:
        """Return the pause in seconds after this failure."""
        pause = self._next_s
        self._next_s = min(self._longest_s, pause * 2)
        return pause * _random.uniform(0.5, 1.0)


async def retry_until_answered(call: Callable[[], Awaitable[Answer]]) -> Answer:
    """Repeat a call until the portal answers, whatever the answer is."""
    backoff = Backoff()
    while True:
        try:
            return await call()
        except PortalUnreachable as error:
            log.info("the portal does not respond: %s", error)
            await asyncio.sleep(backoff.pause_s())
