"""One cheap query for all waiting clients: has their desired state changed?"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from django.apps import apps
from django.db import DatabaseError, connection

from portal.core.notify import listener

log = structlog.get_logger(__name__)
_AFTER_TROUBLE_S = 1.0
_IDLE_S = 5.0
# Above this number of waiting clients it is cheaper to read all nodes than to filter them.
_MOST_NAMED = 500


@dataclass(eq=False)
class _Waiter:
    seen: int
    loop: asyncio.AbstractEventLoop
    changed: asyncio.Event


class VersionWatch:
    """Watches the versions for which clients wait, in one thread per process.

    The thread starts with the first waiting client and ends soon after the last. Clients are
    identified by the hash of their token. Unknown ones do not wait. `read` queries the versions of
    some hashes, when `portal.core.notify` says that they may have changed.
    """

    def __init__(self, read: Callable[[Sequence[str]], dict[str, int]]) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._waiting: dict[str, set[_Waiter]] = {}
        self._thread: threading.Thread | None = None

    def waiting_for(self, token_hash: str) -> int:
        """Return how many clients wait with this token."""
        with self._lock:
            return len(self._waiting.get(token_hash, ()))

    async def beyond(self, token_hash: str, seen: int) -> None:
        """Return once the version is greater than `seen`, or the token is unknown."""
        waiter = _Waiter(seen, asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            self._waiting.setdefault(token_hash, set()).add(waiter)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="versions", daemon=True)
                self._thread.start()
        listener.wake_waiters()
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
        while True:
            known = listener.notification_count()
            with self._lock:
                hashes = list(self._waiting)
                if hashes:
                    idle_since = time.monotonic()
                elif time.monotonic() - idle_since > _IDLE_S:
                    self._thread = None
                    break
            if hashes:
                self._look(hashes)
            listener.wait(known)
        connection.close()

    def _look(self, hashes: list[str]) -> None:
        """Query the database once."""
        try:
            versions = self._read(hashes)
        except DatabaseError as error:
            log.warning("desired_versions_unavailable", reason=str(error)[:200])
            connection.close()
            time.sleep(_AFTER_TROUBLE_S)
            return
        with self._lock:
            ready = [
                waiter
                for token_hash in hashes
                for waiter in self._waiting.get(token_hash, ())
                if versions.get(token_hash, waiter.seen + 1) > waiter.seen
            ]
        self._release(ready)

    def _release(self, waiters: Iterable[_Waiter]) -> None:
        for waiter in waiters:
            try:
                waiter.loop.call_soon_threadsafe(waiter.changed.set)
            except RuntimeError:  # its event loop has ended
                continue


def versions_of_nodes(hashes: Sequence[str]) -> dict[str, int]:
    """Return the version of the desired state of each node."""
    # By name, because this module is imported before Django has loaded its models.
    node: Any = apps.get_model("compute", "Node")
    nodes = node.objects.present().order_by()
    if len(hashes) <= _MOST_NAMED:
        nodes = nodes.filter(token_hash__in=hashes)
    return dict(nodes.values_list("token_hash", "desired_version"))


def versions_of_gateways(hashes: Sequence[str]) -> dict[str, int]:
    """Return the version of the snapshot of each gateway."""
    gateway: Any = apps.get_model("endpoints", "Gateway")
    serving: Any = apps.get_model("endpoints", "ServingVersion")
    known = gateway.objects.filter(token_hash__in=hashes).values_list("token_hash", flat=True)
    return dict.fromkeys(known, serving.objects.current())


def versions_of_hubs(hashes: Sequence[str]) -> dict[str, int]:
    """Return the version of the notebook servers of each Hub."""
    hub: Any = apps.get_model("notebooks", "Hub")
    value: Any = apps.get_model("notebooks", "HubVersion")
    known = hub.objects.filter(token_hash__in=hashes).values_list("token_hash", flat=True)
    return dict.fromkeys(known, value.objects.current())


def versions_of_helpers(hashes: Sequence[str]) -> dict[str, int]:
    """Return the sum of the versions of each person's helpers, by the hashes of API tokens."""
    token: Any = apps.get_model("accounts", "ApiToken")
    helper: Any = apps.get_model("compute", "PoolHelper")
    people = dict(
        token.objects.usable().filter(token_hash__in=hashes).values_list("token_hash", "user_id")
    )
    versions = dict.fromkeys(people.values(), 0)
    helpers = helper.objects.filter(user__in=versions)
    for user_id, version in helpers.values_list("user_id", "version"):
        versions[user_id] += version
    return {token_hash: versions[user_id] for token_hash, user_id in people.items()}
