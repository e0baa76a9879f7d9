"""Reports events of tasks to the portal: in order, from disk, until receipt is confirmed."""

import asyncio
import logging
from typing import Any, Final

import pydantic

from slipway.schemas.agent import Reports, TaskKey, TaskReport
from slipway.schemas.base import forbidden_character
from slipway.schemas.truncation import shorten
from workers.launcher.journal import JournalEntry
from workers.node_agent.attempts import Attempt, AttemptTable
from workers.node_agent.notifier import Notifier
from workers.node_agent.portal import Portal
from workers.portal_client.backoff import Backoff
from workers.portal_client.client import PortalRefused, PortalUnreachable

log = logging.getLogger(__name__)
_BATCH: Final = 500
_PER_ATTEMPT: Final = 100
_LOOK_EVERY_S: Final = 1.0
_MESSAGE_LIMIT: Final = 2000
_TAIL_LIMIT: Final = 16_384
_REASON_LIMIT: Final = 500
_KINDS: Final = frozenset({"starting", "rendezvous", "running", "progress", "failed", "ended"})


class Reporter:
    """Sends the journals of all attempts."""

    def __init__(self, portal: Portal, table: AttemptTable, bell: Notifier) -> None:
        self._portal = portal
        self._table = table
        self._notifier = bell
        self._backoff = Backoff(first_s=0.1, longest_s=5.0)

    async def run(self) -> None:
        """Send forever. While the portal is unreachable, retry."""
        while True:
            seen = self._notifier.version
            try:
                more = await self.send()
            except PortalUnreachable as error:
                log.info("reports are delayed: %s", error)
                await asyncio.sleep(self._backoff.pause_s())
                continue
            self._backoff.reset()
            if not more:
                await self._notifier.wait(seen, within_s=_LOOK_EVERY_S)

    async def send(self) -> bool:
        """Send one batch and return whether there may be more. Raises PortalUnreachable."""
        batch: list[TaskReport] = []
        sent: list[tuple[Attempt, list[JournalEntry]]] = []
        for attempt in self._table:
            room = min(_PER_ATTEMPT, _BATCH - len(batch))
            if attempt.stale or room <= 0:
                continue
            entries = attempt.unsent_events(limit=room)
            if entries:
                first = attempt.cursors.sequence + 1
                batch.extend(
                    report_of(attempt.key, sequence, entry.event)
                    for sequence, entry in enumerate(entries, start=first)
                )
                sent.append((attempt, entries))
        if not batch:
            return False
        await self._deliver(batch)
        for attempt, entries in sent:
            attempt.cursors.sequence += len(entries)
            attempt.cursors.journal = entries[-1].end_offset
            attempt.unwritten_end = None
            attempt.save_cursors()
            attempt.notifier.notify()
        return True

    async def _deliver(self, batch: list[TaskReport]) -> None:
        """Hand a batch over. One report that is refused must not hold up the others for ever."""
        try:
            answer = await self._portal.report(Reports(reports=batch))
        except PortalRefused as error:
            if error.status in (401, 403):
                raise PortalUnreachable(str(error)) from error
            if len(batch) == 1:
                log.warning("a report was rejected and dropped: %s: %s", error, batch[0])
                return
            for report in batch:
                await self._deliver([report])
            return
        for key in answer.stale:
            attempt = self._table.find(key)
            if attempt is not None:
                attempt.stale = True
                attempt.notifier.notify()


def report_of(key: TaskKey, sequence: int, event: dict[str, Any]) -> TaskReport:
    """Make the report of one event. A journal from a container may hold anything: what cannot be
    read becomes a report without content, so that the count stays whole."""
    at_unix_ms = event.get("at_unix_ms")
    base: dict[str, Any] = {
        "task_id": key.task_id,
        "epoch": key.epoch,
        "sequence": sequence,
        "kind": event.get("kind") if event.get("kind") in _KINDS else "progress",
        "at_unix_ms": at_unix_ms if isinstance(at_unix_ms, int) else 0,
    }
    fields = {name: value for name, value in event.items() if name in TaskReport.model_fields}
    fields["message"] = _clean(str(event.get("message", "")))
    fields["kept_end"] = _clean(str(event.get("kept_end", "")))[:_REASON_LIMIT]
    fields["log_tail"] = str(event.get("log_tail", "")).replace("\0", "\ufffd")[-_TAIL_LIMIT:]
    try:
        return TaskReport.model_validate({**fields, **base})
    except pydantic.ValidationError as error:
        log.warning("an event of %s cannot be reported: %s", key, error)
        return TaskReport.model_validate({**base, "message": fields["message"]})


def _clean(message: str) -> str:
    line = " ".join(message.split())
    kept = "".join(" " if forbidden_character(letter) else letter for letter in line)
    return shorten(kept, _MESSAGE_LIMIT)
