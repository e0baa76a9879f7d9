"""Passes a request on to the dashboard of a cluster, through the door of the relay."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import httpx
import structlog

log = structlog.get_logger(__name__)
_PATIENCE: Final = httpx.Timeout(120.0, connect=5.0)
_NO_REUSE: Final = httpx.Limits(max_connections=1, max_keepalive_connections=0)
# The agent connects to the relay when the first dashboard of its node is opened.
_DOOR_WITHIN_S: Final = 15.0
_POLL_S: Final = 0.1
_LARGEST_BODY: Final = 512 << 20
# No cookies, no credentials, and nothing that names other hosts.
_PASSED_ON: Final = frozenset(
    {
        *(b"accept", b"accept-encoding", b"accept-language", b"cache-control", b"content-type"),
        *(b"content-length", b"content-encoding", b"user-agent", b"range", b"if-range"),
        *(b"if-none-match", b"if-modified-since", b"x-requested-with", b"sec-fetch-mode"),
        *(b"sec-fetch-site", b"sec-fetch-dest"),
    }
)
_HANDED_BACK: Final = frozenset(
    {
        *("accept-ranges", "cache-control", "content-disposition", "content-encoding"),
        *("content-language", "content-length", "content-range", "content-type", "date", "etag"),
        *("expires", "last-modified", "location", "retry-after", "vary"),
        *("content-security-policy",),
    }
)
# Pages of a dashboard are shown in no frame of another origin, and name no address to others.
_ADDED: Final = (
    (b"content-security-policy", b"frame-ancestors 'self'"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"same-origin"),
    (b"x-content-type-options", b"nosniff"),
)


class Unreachable(Exception):
    """The dashboard cannot be reached now, with the reason for people."""


class _Disconnected(Exception):
    pass


async def pass_on(scope: Any, receive: Any, send: Any, *, door: Path) -> None:
    """Send a request through a door, and stream the response. Raises Unreachable before it.

    Each request has a connection of its own: the other end adds the token of the cluster to the
    first request of a connection.
    """
    await _wait_for(door)
    target = scope.get("raw_path") or scope["path"].encode()
    if scope["query_string"]:
        target = target.partition(b"?")[0] + b"?" + scope["query_string"]
    headers = [(name, value) for name, value in scope["headers"] if name in _PASSED_ON]
    has_body = any(
        name in (b"content-length", b"transfer-encoding") for name, _ in scope["headers"]
    )
    transport = httpx.AsyncHTTPTransport(uds=str(door), limits=_NO_REUSE)
    has_begun = False
    try:
        async with httpx.AsyncClient(transport=transport, timeout=_PATIENCE) as client:
            url = httpx.URL(scheme="http", host="localhost", raw_path=target)
            request = httpx.Request(
                scope["method"],
                url,
                headers=[(b"host", b"localhost"), *headers, (b"connection", b"close")],
                content=_body(receive) if has_body else None,
                extensions={"timeout": _PATIENCE.as_dict()},
            )
            response = await client.send(request, stream=True)
            try:
                await send(
                    {
                        "type": "http.response.start",
                        "status": response.status_code,
                        "headers": [
                            *(
                                (name, value)
                                for name, value in response.headers.raw
                                if name.decode("latin1").lower() in _HANDED_BACK
                            ),
                            *_ADDED,
                        ],
                    }
                )
                has_begun = True
                await _stream(response, receive, send)
            finally:
                await response.aclose()
    except _Disconnected:
        return
    except (httpx.TransportError, httpx.InvalidURL, ValueError) as error:
        log.info("dashboard_unreachable", reason=f"{type(error).__name__}: {error}"[:200])
        if has_begun:
            raise
        raise Unreachable(
            "The connection to the node of the job was lost, or the job has ended."
        ) from error


async def _stream(response: httpx.Response, receive: Any, send: Any) -> None:
    """Send the body until it ends or the browser leaves."""

    async def copy() -> None:
        async for block in response.aiter_raw():
            await send({"type": "http.response.body", "body": block, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def left() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    tasks = [asyncio.create_task(copy()), asyncio.create_task(left())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            if not task.done():
                task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task


async def _body(receive: Any) -> AsyncIterator[bytes]:
    size = 0
    while True:
        event = await receive()
        if event["type"] == "http.disconnect":
            raise _Disconnected
        part = event.get("body", b"")
        size += len(part)
        if size > _LARGEST_BODY:
            raise _Disconnected
        if part:
            yield part
        if not event.get("more_body", False):
            return


async def _wait_for(door: Path) -> None:
    """Wait until the node has connected. Raises Unreachable."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _DOOR_WITHIN_S
    while not os.path.exists(door):  # noqa: ASYNC240, PTH110 - a look, and no disk
        if loop.time() > deadline:
            raise Unreachable("The node of the job is connecting. This page reloads by itself.")
        await asyncio.sleep(_POLL_S)
