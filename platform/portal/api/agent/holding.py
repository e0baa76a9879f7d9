"""Holds `GET /api/agent/v1/desired` until there is something new to say.

The wait happens out here, before Django gives the request a thread: a thousand agents that wait
cost a thousand small objects and one query forty times a second. Who asks and whether they may is
decided afterwards, by the gate of the operation; a token nobody knows is not held at all.
"""

import asyncio
from collections.abc import Awaitable
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
from portal.api.agent.versions import VersionWatch
from portal.compute.tokens import bearer_of, has_node_shape

PATH = "/api/agent/v1/desired"
LONGEST_S = 30.0
# An agent has one request under way; a second may overlap with one that was cut off.
_HELD_A_NODE = 4


class HoldDesired:
    """An ASGI application around another one, which answers the request after the wait."""

    def __init__(self, app: ASGI3Application) -> None:
        self.app = app
        self._watch = VersionWatch()

    async def __call__(
        self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable
    ) -> None:
        if scope["type"] != "http" or scope["method"] != "GET" or scope["path"] != PATH:
            await self.app(scope, receive, send)
            return
        asked = _asked(scope)
        if asked is None or self._watch.waiting_for(asked[0]) >= _HELD_A_NODE:
            await self.app(scope, receive, send)
            return
        token_hash, seen, wait_s = asked
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


def _asked(scope: HTTPScope) -> tuple[str, int, float] | None:
    """Return (hash of the token, version seen, seconds to wait), or None if there is no waiting."""
    headers = dict(scope["headers"])
    secret = bearer_of(headers.get(b"authorization", b"").decode("latin1"))
    if not has_node_shape(secret):
        return None
    query = parse_qs(scope["query_string"].decode("latin1"), max_num_fields=10)
    try:
        seen = int(query.get("seen", ["0"])[0])
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
