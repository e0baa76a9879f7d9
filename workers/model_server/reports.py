"""Reports the state of this replica to the portal, from a thread that never blocks serving."""

import logging
import queue
import threading
import time
from typing import Any, Final

import httpx

from slipway.schemas.serving import ReplicaReport, ReplicaSpec, ReplicaState
from slipway.schemas.truncation import shorten

log = logging.getLogger(__name__)
_AGAIN_S: Final = 10.0
_RETRY_S: Final = 1.0
_PATIENCE_S: Final = 5.0


class Reporter:
    """Sends the newest report at once, and again every ten seconds. Without a URL only logs."""

    def __init__(self, spec: ReplicaSpec) -> None:
        self._spec = spec
        self._news: queue.SimpleQueue[ReplicaReport | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="reports", daemon=True)
        self._thread.start()

    def tell(self, state: ReplicaState, reason: str = "", **details: Any) -> None:
        """Queue a report of a state change. Returns immediately."""
        spec = self._spec
        log.info("%s %s", state.value, reason)
        self._news.put(
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
        self._news.put(None)
        self._thread.join(within_s)

    def _run(self) -> None:
        spec = self._spec
        headers = {"Authorization": f"Bearer {spec.token}"} if spec.token else {}
        newest: ReplicaReport | None = None
        pause_s: float | None = None
        with httpx.Client(timeout=_PATIENCE_S, headers=headers) as client:
            while True:
                try:
                    news = self._news.get(timeout=pause_s)
                except queue.Empty:
                    news = newest
                if news is None:
                    return
                newest = news
                if spec.report_url is not None:
                    pause_s = _AGAIN_S if self._sent(client, spec.report_url, news) else _RETRY_S

    def _sent(self, client: httpx.Client, url: str, report: ReplicaReport) -> bool:
        try:
            now = report.model_copy(update={"sent_unix_ms": int(time.time() * 1000)})
            answer = client.post(
                url,
                content=now.model_dump_json(exclude_none=True),
                headers={"Content-Type": "application/json"},
            )
        except httpx.HTTPError as error:
            log.warning("report not sent: %s", type(error).__name__)
            return False
        if answer.is_error:
            log.warning("report rejected: %s", answer.status_code)
        return not answer.is_error
