"""Says to the portal that this node lives, and writes down for how long its tasks may go on."""

import asyncio
import logging
import secrets
from collections.abc import Callable
from typing import Final

from slipway.schemas.agent import Heartbeat, HeartbeatAnswer, NodeFacts
from workers.launcher.disk import FreeSpace
from workers.launcher.lease import Lease
from workers.launcher.processes import uptime_s
from workers.node_agent.attempts import AttemptTable
from workers.node_agent.folders import NodeFolders
from workers.node_agent.host_info import CpuLoad, memory_used_bytes
from workers.node_agent.portal import Portal
from workers.node_agent.warm_pool import WarmPool
from workers.portal_client.backoff import Backoff
from workers.portal_client.client import PortalRefused, PortalUnreachable

log = logging.getLogger(__name__)
_REFUSED_PAUSE_S: Final = 10.0
_UNKNOWN: Final = 401
_FIRST_PAUSE_S: Final = 0.3


class HeartbeatSender:
    """Sends heartbeats. The lease counts from their sending, so ours ends before the portal's."""

    def __init__(
        self,
        portal: Portal,
        table: AttemptTable,
        lease: Lease,
        host_info: Callable[[], NodeFacts],
        warm: WarmPool | None,
        folders: NodeFolders,
    ) -> None:
        self._portal = portal
        self._table = table
        self._lease = lease
        self._host_info = host_info
        self._warm = warm
        self._root = folders.root
        # This file exists while the portal does not know this node any more.
        self._refused = folders.removed
        self._boot_id = secrets.token_hex(8)
        self._load = CpuLoad()
        self._backoff = Backoff(first_s=0.2, longest_s=3.0)
        self._answered_at_s = uptime_s()
        self.first = asyncio.Event()
        # Set once the portal does not know this node any more.
        self.is_removed = asyncio.Event()

    @property
    def silent_s(self) -> float:
        """Return the seconds since the portal's last answer, or since the start."""
        return uptime_s() - self._answered_at_s

    async def run(self) -> None:
        """Beat for ever."""
        while True:
            pause_s = await self.beat()
            await asyncio.sleep(pause_s)

    async def beat(self) -> float:
        """Send one heartbeat and return the pause until the next."""
        sent_at_s = uptime_s()
        try:
            answer = await self._portal.heartbeat(self._heartbeat())
        except PortalUnreachable as error:
            left_s = self._lease.remaining_s()
            log.warning("heartbeat failed (lease left: %s s): %s", _rounded(left_s), error)
            pause_s = self._backoff.pause_s()
            # Initially, the portal is most likely starting at the same time.
            return pause_s if self.first.is_set() else min(pause_s, _FIRST_PAUSE_S)
        except PortalRefused as error:
            log.error(  # noqa: TRY400 - the portal's words are enough
                "the portal rejects this node: %s. If it was removed there: the node of "
                "`manage.py up` joins again at its next start. For other nodes, stop the agent, "
                "delete its data folder and run `slipway node join`.",
                error,
            )
            if error.status == _UNKNOWN:
                self._refused.touch()
                self.is_removed.set()
            return _REFUSED_PAUSE_S
        self._backoff.reset()
        self._answered_at_s = uptime_s()
        self._refused.unlink(missing_ok=True)
        self._lease.renew(sent_at_s=sent_at_s, lease_s=answer.lease_s)
        self._fence(answer)
        if not self.first.is_set():
            self.first.set()
            self._table.notify()
        return answer.heartbeat_s

    def _heartbeat(self) -> Heartbeat:
        running = [attempt.key for attempt in self._table if not attempt.finished]
        return Heartbeat(
            boot_id=self._boot_id,
            facts=self._host_info(),
            cpu_percent=self._load.percent(),
            memory_used_bytes=memory_used_bytes(),
            disk_free_bytes=FreeSpace.of(str(self._root), 0).free_bytes,
            running=running,
            warm=self._warm.facts() if self._warm is not None else [],
        )

    def _fence(self, answer: HeartbeatAnswer) -> None:
        for key in answer.fenced:
            attempt = self._table.find(key)
            if attempt is not None and not attempt.stale:
                log.warning("%s was fenced by the portal", attempt.handle)
                attempt.stale = True
                attempt.notifier.notify()


def _rounded(seconds: float | None) -> str:
    return "none" if seconds is None else f"{seconds:.0f}"
