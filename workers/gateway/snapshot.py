"""The snapshot: fetched from the portal by long polling, and stored on disk."""

import json
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import httpx
import pydantic

from slipway.schemas.serving import GatewayReport, GatewaySnapshot
from workers.gateway.settings import GatewaySettings
from workers.launcher.atomic_files import write_atomically
from workers.portal_client.client import PortalClient, PortalError, PortalRefused

log = logging.getLogger(__name__)
_POLL_S: Final = 1.0
# The portal holds a long poll for this time while nothing is new.
_HOLD_S: Final = 1.0
_LOOK_S: Final = 0.05
_CALM_LOOK_S: Final = 0.25
# Interval at which the keys that are revoked on this host are read.
_REVOKED_S: Final = 0.25
_PATIENCE_S: Final = 5.0
_LARGEST_BYTES: Final = 1 << 30


def read_snapshot(path: Path) -> GatewaySnapshot | None:
    """Read the last valid snapshot. Return None if there is no usable one."""
    try:
        return GatewaySnapshot.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, pydantic.ValidationError) as error:
        log.warning("the snapshot on disk cannot be used: %s", type(error).__name__)
        return None


def read_revoked(path: Path) -> frozenset[str]:
    """Read the keys that an operator revoked on this host, as ids and SHA-256 in hex."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return frozenset()
    except (OSError, ValueError):
        log.warning("%s cannot be read; keys revoked before stay revoked", path.name)
        raise
    return frozenset(map(str, document))


class SnapshotClient:
    """Delivers snapshots and revocations to `apply` and `revoke`, and reports to the portal.

    Both are called in threads of this class and have to hand over to the event loop.
    """

    def __init__(
        self,
        settings: GatewaySettings,
        apply: Callable[[GatewaySnapshot], None],
        revoke: Callable[[frozenset[str]], None],
    ) -> None:
        self._settings = settings
        self._apply = apply
        self._revoke = revoke
        self._etag = ""
        self._report: GatewayReport | None = None
        self._stopped = threading.Event()
        self._revoked_at = -1
        self._threads = (
            threading.Thread(target=self._run, name="portal", daemon=True),
            threading.Thread(target=self._watch_revocations, name="revocations", daemon=True),
        )
        self.is_connected = False
        self.problem = "not checked yet"

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop the threads."""
        self._stopped.set()
        for thread in self._threads:
            thread.join(_PATIENCE_S)

    def send(self, report: GatewayReport) -> None:
        """Send this report, unless a newer one comes first."""
        self._report = report

    def _run(self) -> None:
        settings = self._settings
        next_poll = 0.0
        pause_s = _LOOK_S
        client = PortalClient(timeout_s=_PATIENCE_S)
        while not self._stopped.wait(pause_s):
            began = time.monotonic()
            if settings.portal_url is None or began < next_poll:
                pause_s = _CALM_LOOK_S
                continue
            pause_s = _LOOK_S
            next_poll = began + _POLL_S
            before = self._etag
            try:
                client.use_token(self._token())
                self._poll(client, settings.portal_url)
                self._send_report(client, settings.portal_url)
            except (PortalError, OSError) as error:
                self._mark_disconnected(f"{error}")
                continue
            # A held request has waited already. Without holding, poll once a second.
            if self._etag != before or time.monotonic() - began >= _HOLD_S / 2:
                next_poll = 0.0
        client.close()

    def _mark_disconnected(self, problem: str) -> None:
        if self.is_connected:
            log.warning("the portal is unavailable; continuing to serve: %s", problem)
        self.is_connected, self.problem = False, problem

    def _token(self) -> str:
        """Read the token each time, because an operator may replace its file."""
        path = self._settings.token_file
        return path.read_text(encoding="utf-8").strip() if path else ""

    def _poll(self, client: PortalClient, url: str) -> None:
        answer = client.request(
            "GET",
            f"{url}/api/gateway/v1/snapshot",
            params={"wait_s": _HOLD_S},
            headers={"If-None-Match": self._etag} if self._etag else {},
        )
        if answer.status_code == httpx.codes.NOT_MODIFIED:
            self.is_connected, self.problem = True, ""
            return
        if len(answer.content) > _LARGEST_BYTES:
            self._mark_disconnected("the portal's snapshot is larger than any can be")
            return
        try:
            snapshot = GatewaySnapshot.model_validate_json(answer.content)
        except pydantic.ValidationError as error:
            self._mark_disconnected(
                f"the portal's snapshot is malformed: {error.error_count()} errors"
            )
            return
        try:
            write_atomically(self._settings.snapshot_path, answer.text)
        except OSError as error:
            # Apply it anyway: a new snapshot in memory is better than an old one in both places.
            log.warning("the snapshot cannot be written to disk: %s", error.strerror)
        self._apply(snapshot)
        self._etag = answer.headers.get("ETag", "")
        self.is_connected, self.problem = True, ""
        log.info("serving snapshot %d", snapshot.version)

    def _send_report(self, client: PortalClient, url: str) -> None:
        report, self._report = self._report, None
        if report is None:
            return
        try:
            client.request("POST", f"{url}/api/gateway/v1/reports", report)
        except PortalRefused as error:
            log.warning("the portal rejected a report: %s", error)

    def _watch_revocations(self) -> None:
        while not self._stopped.wait(_REVOKED_S):
            self._read_revocations()

    def _read_revocations(self) -> None:
        path = self._settings.revoked_path
        try:
            changed_at = path.stat().st_mtime_ns
        except OSError:
            changed_at = -1
        if changed_at in (self._revoked_at, -1):
            return
        try:
            self._revoke(read_revoked(path))
        except (OSError, ValueError):
            return
        self._revoked_at = changed_at
