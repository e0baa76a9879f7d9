"""The limit on request bodies that holds before Django spools one to disk."""

from typing import Any

import orjson
from asgiref.typing import (
    ASGI3Application,
    ASGIReceiveCallable,
    ASGIReceiveEvent,
    ASGISendCallable,
    Scope,
)
from django.conf import settings

from portal.config.uploads import is_upload_scope


class _TooLarge(Exception):
    pass


class BodyLimit:
    """Answer 413 as soon as a body is seen to be over the limit, declared or chunked."""

    def __init__(self, app: ASGI3Application) -> None:
        self.app = app

    async def __call__(
        self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable
    ) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if is_upload_scope(scope):  # streamed by a view that has a limit of its own
            await self.app(scope, receive, send)
            return
        limit = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > limit:
            await _refuse(send, limit)
            return
        seen = 0

        async def counted() -> ASGIReceiveEvent:
            nonlocal seen
            event = await receive()
            if event["type"] == "http.request":
                seen += len(event.get("body", b""))
                if seen > limit:
                    raise _TooLarge
            return event

        try:
            await self.app(scope, counted, send)
        except _TooLarge:
            await _refuse(send, limit)


async def _refuse(send: Any, limit: int) -> None:
    body = orjson.dumps(
        {
            "type": "urn:slipway:problem:too_large",
            "title": "Too large",
            "status": 413,
            "detail": f"The body is larger than {limit} bytes.",
            "code": "too_large",
            "next_step": "Send less, or upload a file.",
        }
    )
    headers = [
        (b"content-type", b"application/problem+json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": body})
