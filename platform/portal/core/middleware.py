"""The outermost layer of every request: its id, its log line, its metrics."""

import re
import secrets
import time
from collections.abc import Callable

import structlog
from django.http import HttpRequest, HttpResponse
from django.urls import ResolverMatch

from portal.core.metrics import HTTP_REQUESTS, HTTP_SECONDS

log = structlog.get_logger("slipway.http")
_ACCEPTED_ID = re.compile(r"\A[A-Za-z0-9._-]{8,64}\Z")
QUIET_NAMESPACES = frozenset({"agent", "gateway"})
QUIET_ROUTES = frozenset({"healthz", "readyz", "metrics"})


def request_id_of(request: HttpRequest) -> str:
    """Return the id of this request in the logs."""
    return str(getattr(request, "request_id", ""))


def accepted_request_id(given: str) -> str:
    """Return the id that a client or proxy sent, if it is well-formed, else a new one."""
    return given if _ACCEPTED_ID.match(given) else f"req-{secrets.token_hex(10)}"


class RequestContextMiddleware:
    """Assign each request an id (or accept a well-formed X-Request-Id), log it, time it."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        request_id = accepted_request_id(request.headers.get("X-Request-Id", ""))
        request.request_id = request_id  # type: ignore[attr-defined]
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(request_id=request_id)
        started = time.perf_counter()
        response = self.get_response(request)
        elapsed = time.perf_counter() - started
        response.headers["X-Request-Id"] = request_id
        match = request.resolver_match
        route = match.route if match else "unmatched"
        HTTP_REQUESTS.labels(request.method, route, response.status_code).inc()
        HTTP_SECONDS.labels(route).observe(elapsed)
        if not _is_quiet(match, response.status_code):
            log.info(
                "request",
                method=request.method,
                path=_logged_path(request, match),
                status=response.status_code,
                ms=round(elapsed * 1000, 1),
            )
        return response


def _logged_path(request: HttpRequest, match: ResolverMatch | None) -> str:
    """Return the path without the secret of a webhook."""
    secret = match.kwargs.get("hook") if match else None
    return request.path.replace(str(secret), "…") if secret else request.path


def _is_quiet(match: ResolverMatch | None, status: int) -> bool:
    """Return True for routine requests: probes, and successful requests of machines."""
    if match is None:
        return False
    is_talk = not QUIET_NAMESPACES.isdisjoint(match.namespaces) and status < 400
    return is_talk or match.url_name in QUIET_ROUTES
