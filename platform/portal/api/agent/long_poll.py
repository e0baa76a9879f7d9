"""Long polling for agents, gateways and helpers: requests wait until there is a new version.

The wait happens outside of Django, before a request gets a thread: a thousand waiting agents cost a
thousand small objects, and one query per change. Authorization follows afterwards, by the gate of
the operation. Requests with an unknown token do not wait.
"""

import asyncio
import re
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

from portal.accounts.tokens import has_token_shape, hash_of
from portal.api.agent.versions import (
    VersionWatch,
    versions_of_gateways,
    versions_of_helpers,
    versions_of_hubs,
    versions_of_nodes,
)
from portal.compute.tokens import bearer_of, has_node_shape
from portal.endpoints.tokens import has_gateway_shape
from portal.notebooks.hub_tokens import has_hub_shape

LONGEST_S = 30.0
# A client has one waiting request, and a second may overlap with an interrupted one. A gateway
# has one in each of its processes.
_HELD_A_TOKEN = 64


@dataclass(frozen=True)
class HeldRequest:
    """A waiting request: its path, its kind of token, and the version its sender knows.

    `path` is a pattern. `seen_of` returns the version from the headers and the query. It raises
    ValueError.
    """

    path: re.Pattern[str]
    has_shape: Callable[[str], bool]
    seen_of: Callable[[dict[bytes, bytes], dict[str, list[str]]], int]


def _seen_by_query(_headers: dict[bytes, bytes], query: dict[str, list[str]]) -> int:
    return int(query.get("seen", ["0"])[0])


def _seen_by_etag(headers: dict[bytes, bytes], _query: dict[str, list[str]]) -> int:
    """Read `If-None-Match: "7"`."""
    return int(headers.get(b"if-none-match", b'"-1"').decode("latin1").strip('W/" ') or -1)


DESIRED = HeldRequest(re.compile("/api/agent/v1/desired"), has_node_shape, _seen_by_query)
SNAPSHOT = HeldRequest(re.compile("/api/gateway/v1/snapshot"), has_gateway_shape, _seen_by_etag)
SERVERS = HeldRequest(re.compile("/api/hub/v1/servers"), has_hub_shape, _seen_by_etag)
HELPER = HeldRequest(
    re.compile(r"/api/v1/pools/[a-z0-9-]{1,32}/helper"), has_token_shape, _seen_by_query
)


def hold(app: ASGI3Application) -> ASGI3Application:
    """Wrap the application with long polling for agents, gateways, Hubs and helpers of people."""
    nodes = LongPoll(app, DESIRED, VersionWatch(versions_of_nodes))
    gateways = LongPoll(nodes, SNAPSHOT, VersionWatch(versions_of_gateways))
    hubs = LongPoll(gateways, SERVERS, VersionWatch(versions_of_hubs))
    return LongPoll(hubs, HELPER, VersionWatch(versions_of_helpers))


class LongPoll:
    """An ASGI application around another one, which handles the request after the wait."""

    def __init__(self, app: ASGI3Application, held: HeldRequest, watch: VersionWatch) -> None:
        self.app = app
        self._held = held
        self._watch = watch

    async def __call__(
        self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable
    ) -> None:
        if (
            scope["type"] != "http"
            or scope["method"] != "GET"
            or not self._held.path.fullmatch(scope["path"])
        ):
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
        """Wait for a change, a disconnect or the timeout. Returns False after a disconnect."""
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
    """Return (hash of the token, known version, seconds to wait), or None for no wait."""
    headers = dict(scope["headers"])
    secret = bearer_of(headers.get(b"authorization", b"").decode("latin1"))
    if not held.has_shape(secret):
        return None
    query = parse_qs(scope["query_string"].decode("latin1"), max_num_fields=10)
    try:
        seen = held.seen_of(headers, query)
        wait_s = float(query.get("wait_s", ["0"])[0])
    except ValueError:
        return None  # the operation reports the error
    if not 0 < wait_s < float("inf"):
        return None
    return hash_of(secret), seen, min(wait_s, LONGEST_S)


def _replaying(events: list[ASGIReceiveEvent], receive: ASGIReceiveCallable) -> Any:
    """Return a `receive` that replays the events received so far."""
    remaining = iter(events)

    async def again() -> ASGIReceiveEvent:
        for event in remaining:
            return event
        return await receive()

    return again
