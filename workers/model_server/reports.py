"""Reports the state of this replica to the portal, from a thread that never blocks serving."""

import logging
import queue
import threading
import time
from typing import Any, Final

from slipway.schemas.serving import ReplicaReport, ReplicaSpec, ReplicaState
from slipway.schemas.truncation import shorten
from workers.portal_client.backoff import Backoff
from workers.portal_client.client import PortalClient, PortalError

log = logging.getLogger(__name__)
_AGAIN_S: Final = 10.0
_RETRY_S: Final = 0.5
_PATIENCE_S: Final = 5.0


class Reporter:
    """Sends the newest report at once, and again every ten seconds. Without a URL only logs."""

    def __init__(self, spec: ReplicaSpec) -> None:
        self._spec = spec
        self._queue: queue.SimpleQueue[ReplicaReport | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="reports", daemon=True)
        self._thread.start()

    def report(self, state: ReplicaState, reason: str = "", **details: Any) -> None:
        """Queue a report of a state change. Returns immediately."""
        spec = self._spec
        log.info("%s %s", state.value, reason)
        self._queue.put(
            ReplicaReport(
                replica_id=spec.replica_id,
                revision_id=spec.revision_id,
                state=state,
                reason=shorten(" ".join(reason.split()), 2000),
                sent_unix_ms=int(time.time() * 1000),
                **details,
            )
        )

    def close(self, *, within_s: float = 3.0) -> None:
        """Send what is not sent yet, for at most this long."""
        self._queue.put(None)
        self._thread.join(within_s)

    def _run(self) -> None:
        spec = self._spec
        client = PortalClient(spec.token or "", timeout_s=_PATIENCE_S)
        backoff = Backoff(first_s=_RETRY_S, longest_s=_AGAIN_S)
        newest: ReplicaReport | None = None
        pause_s: float | None = None
        while True:
            try:
                report = self._queue.get(timeout=pause_s)
            except queue.Empty:
                report = newest
            if report is None:
                client.close()
                return
            newest = report
            if spec.report_url is None:
                continue
            if self._sent(client, spec.report_url, report):
                backoff.reset()
                pause_s = _AGAIN_S
            else:
                pause_s = backoff.pause_s()

    def _sent(self, client: PortalClient, url: str, report: ReplicaReport) -> bool:
        now = report.model_copy(update={"sent_unix_ms": int(time.time() * 1000)})
        try:
            client.request("POST", url, now)
        except PortalError as error:
            log.warning("report not sent: %s", error)
            return False
        return True
