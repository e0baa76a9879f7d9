"""Sends the output of ranks to the portal, by offset, a bounded piece at a time."""

import asyncio
import logging
from typing import Final

from workers.launcher.processes import uptime_s
from workers.node_agent.attempts import Attempt, AttemptTable, LogCursor
from workers.node_agent.backends.base import Backend
from workers.node_agent.errors import StaleEpoch
from workers.node_agent.notifier import Notifier
from workers.node_agent.portal import Portal
from workers.portal_client.backoff import Backoff
from workers.portal_client.client import PortalRefused, PortalUnreachable

log = logging.getLogger(__name__)
_PIECE_BYTES: Final = 1 << 20
_TOGETHER: Final = 4
_TURN_PIECES: Final = 16
_LOOK_EVERY_S: Final = 1.0
_KEEP_EVERY_S: Final = 2.0


class LogShipper:
    """Sends new output of all logs to the portal within moments.

    Memory is bounded by the pieces in progress. If the portal is slow, more output stays on the
    disk, up to the bound of each log, and ranks are never slowed down.
    """

    def __init__(
        self, portal: Portal, table: AttemptTable, backends: dict[str, Backend], bell: Notifier
    ) -> None:
        self._portal = portal
        self._table = table
        self._backends = backends
        self._notifier = bell
        self._backoff = Backoff(first_s=0.1, longest_s=5.0)
        self._saved_at_s: dict[str, float] = {}
        # Finished attempts whose complete output the portal has.
        self.complete: set[str] = set()

    async def run(self) -> None:
        """Send forever. While the portal is unreachable, retry."""
        while True:
            seen = self._notifier.version
            try:
                more = await self.send()
            except PortalUnreachable as error:
                log.info("logs are delayed: %s", error)
                await asyncio.sleep(self._backoff.pause_s())
                continue
            self._backoff.reset()
            if not more:
                await self._notifier.wait(seen, within_s=_LOOK_EVERY_S)

    async def send(self) -> bool:
        """Give every log a turn and return whether any has more. Raises PortalUnreachable."""
        room = asyncio.Semaphore(_TOGETHER)

        async def turn(attempt: Attempt, rank: int) -> bool:
            async with room:
                return await self._send_pieces(attempt, rank)

        waiting = [attempt for attempt in self._table if attempt.handle not in self.complete]
        more = False
        for attempt in waiting:
            finished = attempt.finished or attempt.is_kept
            turns = [turn(attempt, rank) for rank in attempt.record.ranks]
            results = await asyncio.gather(*turns, return_exceptions=True)
            for failure in results:
                if isinstance(failure, BaseException):
                    raise failure
            if any(results) or (finished and await self._complete_logs(attempt)):
                more = True
            elif finished or attempt.stale:
                self.complete.add(attempt.handle)
                self._saved_at_s.pop(attempt.handle, None)
                attempt.save_cursors()
                attempt.notifier.notify()
        return more

    async def _complete_logs(self, attempt: Attempt) -> bool:
        """Report the logs of a finished attempt as complete.

        Return whether the portal lacks some.
        """
        for rank in attempt.record.ranks:
            cursor = attempt.cursors.log(rank)
            if attempt.stale:
                return False
            try:
                requested = await self._portal.put_log(
                    attempt.key, rank, cursor.portal, b"", is_last=True
                )
            except StaleEpoch:
                attempt.stale = True
                attempt.notifier.notify()
                return False
            except PortalRefused as error:
                if error.status in (401, 403):
                    raise PortalUnreachable(str(error)) from error
                log.warning("the end of the log of rank %d was rejected: %s", rank, error)
                continue
            if requested != cursor.portal and not cursor.refused:
                self._advance(cursor, 0, requested)
                return True
        return False

    def discard(self, attempt: Attempt) -> None:
        """The attempt is gone."""
        self.complete.discard(attempt.handle)
        self._saved_at_s.pop(attempt.handle, None)

    async def _send_pieces(self, attempt: Attempt, rank: int) -> bool:
        """Send a few pieces of one log and return whether it has more."""
        backend = self._backends.get(attempt.record.backend)
        cursor = attempt.cursors.log(rank)
        for _ in range(_TURN_PIECES):
            if attempt.stale or cursor.refused or backend is None:
                return False
            if not await self._send_piece(attempt, backend, rank, cursor):
                return False
        return True

    async def _send_piece(
        self, attempt: Attempt, backend: Backend, rank: int, cursor: LogCursor
    ) -> bool:
        data = cursor.marker.encode()
        if not data:
            chunk = await backend.logs(attempt.handle, rank, cursor.local, _PIECE_BYTES)
            if not chunk.data:
                return False
            data = chunk.data
            if chunk.offset > cursor.local:
                # Stored on disk before it is sent: after a crash the same bytes must be sent again.
                left_out = chunk.offset - cursor.local
                cursor.marker = f"\n[slipway] {left_out} bytes of output were left out\n"
                cursor.resume = chunk.offset
                attempt.save_cursors()
                return True
        try:
            requested = await self._portal.put_log(attempt.key, rank, cursor.portal, data)
        except StaleEpoch:
            attempt.stale = True
            attempt.notifier.notify()
            return False
        except PortalRefused as error:
            if error.status in (401, 403):
                raise PortalUnreachable(str(error)) from error
            log.warning("the log of rank %d of %s was rejected: %s", rank, attempt.handle, error)
            cursor.refused = True
            return False
        self._advance(cursor, len(data), requested)
        self._save_cursors_sometimes(attempt)
        return True

    @staticmethod
    def _advance(cursor: LogCursor, sent: int, requested: int) -> None:
        """Follow the portal: it may have more than we remembered, or have lost some."""
        moved = requested - cursor.portal
        if cursor.marker and moved == sent:
            cursor.local = cursor.resume
        else:
            cursor.local = max(0, cursor.local + moved)
        cursor.marker = ""
        cursor.portal = requested

    def _save_cursors_sometimes(self, attempt: Attempt) -> None:
        now = uptime_s()
        if now - self._saved_at_s.get(attempt.handle, 0.0) >= _KEEP_EVERY_S:
            self._saved_at_s[attempt.handle] = now
            attempt.save_cursors()
