"""Holds what agents and gateways ask for until there is something new to say.

The wait happens out here, before Django gives the request a thread: a thousand agents that wait
cost a thousand small objects and one query when something has changed. Who asks and whether they
may is decided afterwards, by the gate of the operation; a token nobody knows is not held at all.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

from asgiref.typing import (
    ASGI3Application,
    ASGIReceiveCallable,
    ASGIReceiveEvent,
    ASGISendCallable,
    HTTPScope,
    Scope,
)

from portal.accounts.tokens import hash_of
from portal.api.agent.versions import (
    VersionWatch,
    versions_of_gateways,
    versions_of_hubs,
    versions_of_nodes,
)
from portal.compute.tokens import bearer_of, has_node_shape
from portal.endpoints.tokens import has_gateway_shape
from portal.notebooks.hub_tokens import has_hub_shape

LONGEST_S = 30.0
# Whoever asks has one request under way; a second may overlap with one that was cut off. A gateway
# asks from each of its processes.
_HELD_A_TOKEN = 64


@dataclass(frozen=True)
class HeldRequest:
    """A request that is held: its path, whose tokens count, what its sender has seen already.

    `seen_of` returns the version from the headers and the query; raises ValueError.
    """

    path: str
    has_shape: Callable[[str], bool]
    seen_of: Callable[[dict[bytes, bytes], dict[str, list[str]]], int]


def _seen_by_query(_headers: dict[bytes, bytes], query: dict[str, list[str]]) -> int:
    return int(query.get("seen", ["0"])[0])


def _seen_by_etag(headers: dict[bytes, bytes], _query: dict[str, list[str]]) -> int:
    """Read `If-None-Match: "7"`."""
    return int(headers.get(b"if-none-match", b'"-1"').decode("latin1").strip('W/" ') or -1)


DESIRED = HeldRequest("/api/agent/v1/desired", has_node_shape, _seen_by_query)
SNAPSHOT = HeldRequest("/api/gateway/v1/snapshot", has_gateway_shape, _seen_by_etag)
SERVERS = HeldRequest("/api/hub/v1/servers", has_hub_shape, _seen_by_etag)


def hold(app: ASGI3Application) -> ASGI3Application:
    """Let agents wait for what they should run, gateways and Hubs for what they should serve."""
    nodes = LongPoll(app, DESIRED, VersionWatch(versions_of_nodes))
    gateways = LongPoll(nodes, SNAPSHOT, VersionWatch(versions_of_gateways))
    return LongPoll(gateways, SERVERS, VersionWatch(versions_of_hubs))


class LongPoll:
    """An ASGI application around another one, which answers the request after the wait."""

    def __init__(self, app: ASGI3Application, held: HeldRequest, watch: VersionWatch) -> None:
        self.app = app
        self._held = held
        self._watch = watch

    async def __call__(
        self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable
    ) -> None:
        if scope["type"] != "http" or scope["method"] != "GET" or scope["path"] != self._held.path:
            await self.app(scope, receive, send)
            return
        requested = _asked(scope, self._held)
        if requested is None or self._watch.waiting_for(requested[0]) >= _HELD_A_TOKEN:
            await self.app(scope, receive, send)
            return
        token_hash, seen, wait_s = requested
        events: list[ASGIReceiveEvent] = [await receive()]
        if await self._wait(self._watch.beyond(token_hash, seen), wait_s, receive, events):
            await self.app(scope, _replaying(events, receive), send)

    async def _wait(
        self,
        change: Awaitable[None],
        wait_s: float,
        receive: ASGIReceiveCallable,
        events: list[ASGIReceiveEvent],
    ) -> bool:
        """Wait for the change, the client's leaving or the time; False when the client has left."""
        changed = asyncio.ensure_future(change)
        left = asyncio.ensure_future(receive())
        try:
            await asyncio.wait({changed, left}, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
            if left.done():
                events.append(left.result())
            return events[-1]["type"] != "http.disconnect"
        finally:
            for task in (changed, left):
                task.cancel()
            await asyncio.gather(changed, left, return_exceptions=True)


def _asked(scope: HTTPScope, held: HeldRequest) -> tuple[str, int, float] | None:
    """Return (hash of the token, version seen, seconds to wait), or None if there is no waiting."""
    headers = dict(scope["headers"])
    secret = bearer_of(headers.get(b"authorization", b"").decode("latin1"))
    if not held.has_shape(secret):
        return None
    query = parse_qs(scope["query_string"].decode("latin1"), max_num_fields=10)
    try:
        seen = held.seen_of(headers, query)
        wait_s = float(query.get("wait_s", ["0"])[0])
    except ValueError:
        return None  # the operation will say what is wrong
    if not 0 < wait_s < float("inf"):
        return None
    return hash_of(secret), seen, min(wait_s, LONGEST_S)


def _replaying(events: list[ASGIReceiveEvent], receive: ASGIReceiveCallable) -> Any:
    """Return a `receive` that gives again what was taken already."""
    remaining = iter(events)

    async def again() -> ASGIReceiveEvent:
        for event in remaining:
            return event
        return await receive()

    return again
