"""A bell that many may wait for: something may have changed, and each looks for itself."""

import asyncio
from contextlib import suppress


class News:
    """Counts rings, so that one between looking and waiting is not missed."""

    def __init__(self) -> None:
        self.version = 0
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """Wake everybody who waits."""
        self.version += 1
        rung, self._rung = self._rung, asyncio.Event()
        rung.set()

    async def after(self, version: int, *, within_s: float) -> None:
        """Wait until the bell has rung since `version`, at most `within_s`."""
        if self.version == version:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._rung.wait(), within_s)
