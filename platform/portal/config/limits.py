"""Limit on request bodies, checked before Django spools one to disk."""

from typing import Any

import structlog
from asgiref.typing import (
    ASGI3Application,
    ASGIReceiveCallable,
    ASGIReceiveEvent,
    ASGISendCallable,
    HTTPScope,
    Scope,
)
from django.conf import settings

from portal.config.uploads import is_upload_scope
from portal.core.errors import TooLarge
from portal.core.middleware import accepted_request_id
from portal.core.text import json_bytes, size_text
from slipway.schemas.problem import Problem

log = structlog.get_logger(__name__)


class _TooLarge(Exception):
    pass


class BodyLimit:
    """Respond with 413 as soon as a body exceeds the limit, declared or chunked."""

    def __init__(self, app: ASGI3Application) -> None:
        self.app = app

    async def __call__(
        self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable
    ) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if is_upload_scope(scope):  # streamed by a view with its own limit
            await self.app(scope, receive, send)
            return
        limit = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > limit:
            await _refuse(scope, send, limit)
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
            await _refuse(scope, send, limit)


async def _refuse(scope: HTTPScope, send: Any, limit: int) -> None:
    given = dict(scope["headers"]).get(b"x-request-id", b"").decode("latin1")
    problem = Problem(
        type="urn:slipway:problem:too_large",
        title=TooLarge.title,
        status=TooLarge.status,
        detail=f"The body is larger than {size_text(limit)}.",
        code=TooLarge.default_code,
        next_step="Send less, or upload a file.",
        request_id=accepted_request_id(given),
    )
    log.info(
        "body_refused", path=scope["path"], status=problem.status, request_id=problem.request_id
    )
    body = json_bytes(problem.model_dump(exclude_none=True))
    headers = [
        (b"content-type", b"application/problem+json"),
        (b"content-length", str(len(body)).encode()),
        (b"x-request-id", str(problem.request_id).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
