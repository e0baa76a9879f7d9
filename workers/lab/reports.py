"""Reports the state of this server to the portal, and receives the time of its planned stop."""

import asyncio
import logging
import os
import time
from typing import Any, Final

from workers.lab.activity import Watch, Work
from workers.portal_client.client import AsyncPortalClient, PortalError

log = logging.getLogger(__name__)
_LOOK_EVERY_S: Final = 1.0
_TELL_EVERY_S: Final = 10.0


class Reporter:
    """Reports at once, then every ten seconds and whenever a kernel becomes busy or idle."""

    def __init__(self, watch: Watch, *, url: str, token: str, address: str) -> None:
        self._watch = watch
        self._url = url
        self._client = AsyncPortalClient("", token)
        self._address = address
        self._attempt = int(os.environ.get("SLIPWAY_ATTEMPT", "0"))
        # Also increases across a restart of the same attempt.
        self._sequence = int(time.time() * 1000)
        self.instructions: dict[str, Any] = {}
        self._announced_stop: str | None = None

    async def run(self) -> None:
        """Report until cancelled. Never raises."""
        told_at = 0.0
        busy: tuple[str, ...] = ()
        while True:
            try:
                now_busy = self._watch.busy()
                is_due = not told_at or time.monotonic() - told_at >= _TELL_EVERY_S
                if (is_due or now_busy != busy) and await self._send(self._watch.poll()):
                    told_at = time.monotonic()
                    busy = now_busy
            except Exception:
                log.exception("the report could not be created")
            await asyncio.sleep(_LOOK_EVERY_S if told_at else 0.1)

    async def keep_alive(self) -> None:
        """Report immediately that a user wants the server. Never raises."""
        self._watch.keep_alive()
        await self._send(self._watch.poll())

    def stop_notice(self) -> dict[str, Any]:
        """Return when this server will be stopped, as the portal stated last.

        Saves that the page makes on the first such notice do not count as activity.
        """
        stops_at = self.instructions.get("stops_at")
        if stops_at != self._announced_stop:
            self._announced_stop = stops_at
            if stops_at:
                self._watch.expect_saves()
        values = {"stops_at": stops_at, "why": self.instructions.get("why", "")}
        return values | {"may_keep": bool(self.instructions.get("may_keep"))}

    async def _send(self, work: Work) -> bool:
        self._sequence += 1
        body = {
            "attempt": self._attempt,
            "sequence": self._sequence,
            "address": self._address,
            "busy_kernels": len(work.busy),
            "kernels": work.kernels,
            "terminals": work.terminals,
            "moved": work.moved,
            "why": work.why,
            "open_files": list(work.open_files),
        }
        try:
            answer = await self._client.request("POST", self._url, json=body)
        except PortalError as error:
            log.warning("the portal rejected the report: %s", error)
            return False
        self.instructions = answer.json()
        return True
