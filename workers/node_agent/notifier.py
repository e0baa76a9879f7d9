"""Change notification with many waiters. Each waiter finds out itself what has changed."""

import asyncio
from contextlib import suppress


class Notifier:
    """Counts notifications, so that one between a check and the wait is not missed."""

    def __init__(self) -> None:
        self.version = 0
        self._event = asyncio.Event()

    def notify(self) -> None:
        """Wake all waiters."""
        self.version += 1
        rung, self._event = self._event, asyncio.Event()
        rung.set()

    async def wait(self, version: int, *, within_s: float) -> None:
        """Wait for a notification since `version`, at most `within_s`."""
        if self.version == version:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._event.wait(), within_s)
