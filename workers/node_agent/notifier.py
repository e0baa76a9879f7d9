"""Change notification with many waiters. Each waiter finds out itself what has changed."""

import asyncio
from contextlib import suppress


class Notifier:
    """Counts notifications, so that one between a check and the wait is not missed."""

    def __init__(self) -> None:
        self.version = 0
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """Wake all waiters."""
        self.version += 1
        rung, self._rung = self._rung, asyncio.Event()
        rung.set()

    async def after(self, version: int, *, within_s: float) -> None:
        """Wait for a notification since `version`, at most `within_s`."""
        if self.version == version:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._rung.wait(), within_s)
