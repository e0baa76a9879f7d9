"""Refuses requests to addresses that are not the portal's, before anything else reads them.

Django's ALLOWED_HOSTS ignores the port, so another program of this machine would pass as the
portal. Behind trusted proxies X-Forwarded-Host is compared like Host, and both have to match.
"""

from typing import Any

import orjson
import structlog
from asgiref.typing import (
    ASGI3Application,
    ASGIReceiveCallable,
    ASGISendCallable,
    HTTPScope,
    Scope,
)

from portal.core.middleware import accepted_request_id
from slipway.schemas.hosts import AllowedHosts, HostRefused
from slipway.schemas.problem import Problem

log = structlog.get_logger(__name__)
_TITLES = {400: "Bad request", 421: "Misdirected request"}
_FORWARDED = b"x-forwarded-host"


class HostCheck:
    """Answers 400 or 421 unless a request names an address of the portal.

    The application behind it sees one Host header in canonical form, and no X-Forwarded-Host.
    """

    def __init__(self, app: ASGI3Application, hosts: AllowedHosts, *, trusts_proxies: bool) -> None:
        self.app = app
        self._hosts = hosts
        self._trusts_proxies = trusts_proxies
        # Cached, since nearly all requests have the same Host header.
        self._accepted: dict[bytes, bytes] = {}

    async def __call__(
        self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable
    ) -> None:
        if scope["type"] == "http":
            try:
                host = self._host_of(scope)
            except HostRefused as refusal:
                await _refuse(scope, send, refusal)
                return
            headers = [
                (name, value)
                for name, value in scope["headers"]
                if name not in (b"host", _FORWARDED)
            ]
            scope["headers"] = [(b"host", host), *headers]
        await self.app(scope, receive, send)

    def _host_of(self, scope: HTTPScope) -> bytes:
        """Return the host as the client sees it. Raise HostRefused if it is not allowed."""
        host = self._accept([value for name, value in scope["headers"] if name == b"host"])
        if not self._trusts_proxies:
            return host
        lines = [value for name, value in scope["headers"] if name == _FORWARDED]
        forwarded = [entry.strip() for line in lines for entry in line.split(b",")]
        # The first one is the host the client requested.
        for entry in reversed(forwarded):
            host = self._accept([entry])
        return host

    def _accept(self, values: list[bytes]) -> bytes:
        accepted = self._accepted.get(values[0]) if len(values) == 1 else None
        if accepted is None:
            accepted = self._hosts.accept([value.decode("latin1") for value in values]).encode()
            if len(self._accepted) < 1000:
                self._accepted[values[0]] = accepted
        return accepted


async def _refuse(scope: HTTPScope, send: Any, refusal: HostRefused) -> None:
    given = dict(scope["headers"]).get(b"x-request-id", b"").decode("latin1")
    problem = Problem(
        type=f"urn:slipway:problem:{refusal.code}",
        title=_TITLES[refusal.status],
        status=refusal.status,
        detail=refusal.detail,
        code=refusal.code,
        next_step="Use that address. An operator adds another one to SLIPWAY_ALLOWED_HOSTS.",
        request_id=accepted_request_id(given),
    )
    log.info(
        "host_refused", path=scope["path"], status=problem.status, request_id=problem.request_id
    )
    body = orjson.dumps(problem.model_dump(exclude_none=True))
    headers = [
        (b"content-type", b"application/problem+json"),
        (b"content-length", str(len(body)).encode()),
        (b"x-request-id", str(problem.request_id).encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"cache-control", b"no-store"),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
