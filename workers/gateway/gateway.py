"""The gateway process: starts all components and their periodic tasks."""

import asyncio
import gc
import logging
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from prometheus_client import REGISTRY

import workers
from slipway.schemas.hosts import LOOPBACK_NAMES, AllowedHosts
from slipway.schemas.serving import GatewayReport, GatewaySnapshot
from workers.gateway.capture import CaptureLog
from workers.gateway.capture_log.format import AT_WORK
from workers.gateway.connection import Clients, Connection
from workers.gateway.metrics import GatewayCollector
from workers.gateway.routes import Router
from workers.gateway.routing_table import RoutingTable
from workers.gateway.settings import GatewaySettings
from workers.gateway.snapshot import SnapshotClient, read_revoked, read_snapshot
from workers.health import Check, HealthServer
from workers.launcher.atomic_files import create_once

log = logging.getLogger(__name__)
_ROOT: Final = Path(workers.__path__[0]).parent
_BACKLOG: Final = 4096
_DRAIN_S: Final = 15.0
_SHIPPER_PAUSE_S: Final = 1.0
_LINES_BYTES: Final = 4096
_EVERY_ADDRESS: Final = frozenset({"0.0.0.0", "[::]"})  # noqa: S104  (compared, not bound)
# The shipper retains its memory for the next segment: allocating it again is a quarter of its work,
# in system calls that no prediction can preempt. So Arrow uses malloc: mimalloc returns segments of
# huge pages to the kernel regardless of its options, and they have to be cleared again.
_SHIPPER: Final = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_TRIM_THRESHOLD_": "134217728",
    "MALLOC_MMAP_THRESHOLD_": "134217728",
    "PYTHONPATH": f"{_ROOT / 'platform'}{os.pathsep}{_ROOT}",
}


class Gateway:
    """Serves until it receives a signal to stop."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self._boot_id = secrets.token_hex(8)
        self._sequence = 0
        self._stop = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._capture = CaptureLog(settings.capture_dir, limit_bytes=settings.capture_bytes)
        self._table = RoutingTable(self._capture, settings.relay_folder)
        self._router = Router(self._table)
        self._clients = Clients(
            self._router,
            limit=settings.max_connections,
            held_bytes=settings.held_bytes,
            head_within_s=settings.head_within_s,
        )
        self._portal = SnapshotClient(
            settings,
            lambda snapshot: self._in_loop(lambda: self._apply(snapshot)),
            lambda revoked: self._in_loop(lambda: self._revoke(revoked)),
        )

    async def run(self) -> None:
        """Serve the snapshot on disk at once, then that of the portal. Raises OSError."""
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._stop.set)
        self._table.revoke(read_revoked(self._settings.revoked_path))
        gateway_snapshot = read_snapshot(self._settings.snapshot_path)
        if gateway_snapshot is not None:
            self._apply(gateway_snapshot)
            log.info("serving snapshot %d from the disk", gateway_snapshot.version)
        listener = self._socket()
        self._router.hosts = self._hosts(int(listener.getsockname()[1]))
        server = await self._loop.create_server(
            lambda: Connection(self._clients), sock=listener, backlog=_BACKLOG
        )
        address = server.sockets[0].getsockname()
        log.info("listening on http://%s:%d", address[0], address[1])
        self._portal.start()
        health = self._health()
        tasks = [
            self._loop.create_task(work)
            for work in (
                self._run_every(0.2, self._measure),
                self._run_every(1.0, self._maintain),
                self._run_every(2.0, self._report),
                self._run_shipper(),
            )
        ]
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 50, 50)
        await self._stop.wait()
        server.close()
        if health is not None:
            health.stop()
        await self._drain()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.to_thread(self._portal.stop)
        self._capture.close()

    def _health(self) -> HealthServer | None:
        if self._settings.health_port is None:
            return None
        checks = {"snapshot": self._has_snapshot, "capture": self._captures}
        token = _health_token(self._settings.health_token_path)
        REGISTRY.register(
            GatewayCollector(lambda: list(self._table.by_id.values()), self._capture.counters)
        )
        health = HealthServer(self._settings.health_port, checks, token=token)
        health.start()
        log.info("health on http://127.0.0.1:%d", health.port)
        return health

    def _has_snapshot(self) -> Check:
        portal = self._portal
        message = "the portal responds" if portal.is_connected else f"portal: {portal.problem}"
        return Check(self._table.is_loaded, f"serving snapshot {self._table.version}; {message}")

    def _captures(self) -> Check:
        # A full disk is reported, but does not make this gateway unready.
        return Check(ok=True, detail=self._capture.counters.reason)

    def _socket(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._settings.host else socket.AF_INET
        result = socket.socket(family, socket.SOCK_STREAM)
        result.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Several gateways of one host share a port. Each has its own data folder.
        result.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        result.bind((self._settings.host, self._settings.port))
        return result

    def _hosts(self, port: int) -> AllowedHosts:
        """Return the allowed Host values. Names of this machine count with the listening port."""
        settings = self._settings
        own = f"[{settings.host}]" if ":" in settings.host else settings.host
        return AllowedHosts.of(
            settings.public_url or f"http://localhost:{port}",
            extra=settings.allowed_hosts,
            port=port,
            listens_on=[*LOOPBACK_NAMES, *([] if own in _EVERY_ADDRESS else [own])],
        )

    def _in_loop(self, act: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop has ended during the call of the thread
            self._loop.call_soon_threadsafe(act)

    def _apply(self, snapshot: GatewaySnapshot) -> None:
        self._table.apply(snapshot)
        self._router.clear_cache()

    def _revoke(self, revoked: frozenset[str]) -> None:
        self._table.revoke(revoked)
        self._router.clear_cache()
        log.info("%d keys are revoked on this host", len(revoked))

    async def _run_every(self, pause_s: float, act: Callable[[], None]) -> None:
        while True:
            await asyncio.sleep(pause_s)
            try:
                act()
            except Exception:
                log.exception("a periodic task of the gateway failed; it continues to serve")

    def _measure(self) -> None:
        now = time.monotonic()
        for endpoint in self._table.by_id.values():
            endpoint.measure(now)

    def _maintain(self) -> None:
        now = time.monotonic()
        for endpoint in self._table.by_id.values():
            endpoint.expire(now)
        self._clients.sweep()
        self._capture.seal()
        self._capture.measure()

    def _report(self) -> None:
        self._sequence += 1
        endpoints, replicas = [], []
        for endpoint in self._table.by_id.values():
            revisions = [
                item.count.to_report(item.route.id) for item in endpoint.revisions.values()
            ]
            endpoints.append(endpoint.count.to_report(endpoint.route.id, revisions))
            for revision in endpoint.revisions.values():
                replicas += [link.to_report() for link in revision.links.values()]
        self._portal.send(
            GatewayReport(
                gateway=self._settings.name,
                boot_id=self._boot_id,
                sequence=self._sequence,
                snapshot_version=self._table.version,
                sent_unix_ms=int(time.time() * 1000),
                endpoints=endpoints,
                replicas=replicas,
                capture=self._capture.counters.model_copy(),
            )
        )

    async def _drain(self) -> None:
        self._clients.stop()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._clients.gone.wait(), _DRAIN_S)

    async def _watch_shipper(self, shipper: asyncio.subprocess.Process) -> int:
        """Disable busy polling while the shipper works, and return the shipper's exit status."""
        busy_poll, value = self._table.busy_poll, shipper.stdout
        try:
            while value is not None and (lines := await value.read(_LINES_BYTES)):
                busy_poll.is_shipping = lines.endswith(AT_WORK)
        finally:
            busy_poll.is_shipping = False
        return await shipper.wait()

    async def _run_shipper(self) -> None:
        """Run the shipper as a separate process, to keep pyarrow and its work out of this one."""
        settings = self._settings
        while True:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "workers.gateway.shipper"),
                *(str(settings.capture_dir), str(settings.predictions_dir)),
                cwd=_ROOT,
                env=os.environ | _SHIPPER,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
            await _wait_or_kill(partial(self._watch_shipper, process), process.kill)
            log.warning("the shipper ended with %s and is being restarted", process.returncode)
            await asyncio.sleep(_SHIPPER_PAUSE_S)


def _health_token(path: Path) -> str:
    """Return the token for metrics. The first gateway of a data folder creates it."""
    create_once(path, f"{secrets.token_urlsafe(32)}\n")
    return path.read_text("ascii").strip()


async def _wait_or_kill(wait: Callable[[], Awaitable[int]], kill: Callable[[], None]) -> None:
    try:
        await wait()
    except asyncio.CancelledError:
        with suppress(ProcessLookupError):
            kill()
        raise
