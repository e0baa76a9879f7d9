"""One cheap query for all agents that wait: has what they should run changed?"""

import asyncio
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import structlog
from django.apps import apps
from django.db import DatabaseError, connection

log = structlog.get_logger(__name__)
# An agent hears of a change within this and the time of the query.
_LOOK_EVERY_S = 0.025
_AFTER_TROUBLE_S = 1.0
_IDLE_S = 5.0
# With more waiting than this it is cheaper to read all nodes than to name them.
_MOST_NAMED = 500


@dataclass(eq=False)
class _Waiter:
    seen: int
    loop: asyncio.AbstractEventLoop
    changed: asyncio.Event


class VersionWatch:
    """Watches the `desired_version` of the nodes somebody waits for, in one thread a process.

    The thread starts with the first who waits and ends soon after the last. Nodes are known by the
    hash of their token; one that is not known has nothing to wait for.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, set[_Waiter]] = {}
        self._thread: threading.Thread | None = None

    def waiting_for(self, token_hash: str) -> int:
        """Return how many wait for this node."""
        with self._lock:
            return len(self._waiting.get(token_hash, ()))

    async def beyond(self, token_hash: str, seen: int) -> None:
        """Return once the node's version is greater than `seen`, or there is no such node."""
        waiter = _Waiter(seen, asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            self._waiting.setdefault(token_hash, set()).add(waiter)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="desired", daemon=True)
                self._thread.start()
        try:
            await waiter.changed.wait()
        finally:
            with self._lock:
                others = self._waiting.get(token_hash, set())
                others.discard(waiter)
                if not others:
                    self._waiting.pop(token_hash, None)

    def _run(self) -> None:
        idle_since = time.monotonic()
        pause_s = _LOOK_EVERY_S
        while True:
            with self._lock:
                hashes = list(self._waiting)
                if hashes:
                    idle_since = time.monotonic()
                elif time.monotonic() - idle_since > _IDLE_S:
                    self._thread = None
                    break
            if hashes:
                pause_s = self._look(hashes)
            time.sleep(pause_s)
        connection.close()

    def _look(self, hashes: list[str]) -> float:
        """Ask the database once; returns how long to pause."""
        try:
            versions = _versions_of(hashes)
        except DatabaseError as error:
            log.warning("desired_versions_unknown", reason=str(error)[:200])
            connection.close()
            return _AFTER_TROUBLE_S
        with self._lock:
            ready = [
                waiter
                for token_hash in hashes
                for waiter in self._waiting.get(token_hash, ())
                if versions.get(token_hash, waiter.seen + 1) > waiter.seen
            ]
        self._release(ready)
        return _LOOK_EVERY_S

    def _release(self, waiters: Iterable[_Waiter]) -> None:
        for waiter in waiters:
            try:
                waiter.loop.call_soon_threadsafe(waiter.changed.set)
            except RuntimeError:  # its event loop has ended, and it with it
                continue


def _versions_of(hashes: list[str]) -> dict[str, int]:
    # By name, because this module is imported before Django has loaded its models.
    node: Any = apps.get_model("compute", "Node")
    nodes = node.objects.present().order_by()
    if len(hashes) <= _MOST_NAMED:
        nodes = nodes.filter(token_hash__in=hashes)
    return dict(nodes.values_list("token_hash", "desired_version"))
