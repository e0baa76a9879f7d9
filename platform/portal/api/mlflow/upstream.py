"""Streaming proxy to MLflow's own server."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx
import structlog
from django.conf import settings

from portal.api.mlflow.answers import RETRY_SOON, FullResponse, invalid, unavailable
from portal.api.mlflow.request_checks import too_large
from portal.api.mlflow.upstream_errors import clean_error

log = structlog.get_logger(__name__)
WORKSPACE = "x-mlflow-workspace"
_PATIENCE = httpx.Timeout(120.0, connect=2.0, pool=10.0)
# An idle connection is closed before the server does so (`workers.tracking` keeps it longer):
# closing it during a request would make that fail.
_LIMITS = httpx.Limits(max_connections=64, max_keepalive_connections=16, keepalive_expiry=5.0)
# Headers that are passed on to MLflow: no token, and no workspace of the client.
_PASSED_ON = (b"content-type", b"accept", b"content-encoding", b"user-agent", b"range")
_HANDED_BACK = frozenset(
    {"content-type", "content-disposition", "content-encoding", "content-range", "etag"}
)
_NO_REUSE = httpx.Limits(max_connections=64, max_keepalive_connections=0)
# A connection that ended before the answer began.
_LOST = (httpx.ReadError, httpx.WriteError, httpx.CloseError, httpx.RemoteProtocolError)
_IDEMPOTENT = frozenset({"GET", "HEAD", "PUT", "DELETE"})
_LONGEST_FAILURE = 1 << 20
_HOST = "http://tracking"
_CHALLENGE = "www-authenticate"
# The largest artifact of one request.
LARGEST_FILE = 1 << 40


class _Attempt:
    """Progress of a sent request, by the events of httpcore."""

    def __init__(self, body: bytes | AsyncIterator[bytes]) -> None:
        self._body = body
        self.is_connection_reused = True
        self.is_head_sent = False
        self.is_body_begun = False

    async def trace(self, event: str, _info: Mapping[str, Any]) -> None:
        """Record an event."""
        if event == "connection.connect_unix_socket.started":
            self.is_connection_reused = False
        elif event == "http11.send_request_headers.complete":
            self.is_head_sent = True

    async def body(self) -> AsyncIterator[bytes]:
        """Yield the body, and record that it is being read."""
        self.is_body_begun = True
        if isinstance(self._body, bytes):
            yield self._body
        else:
            async for part in self._body:
                yield part

    def may_be_repeated(self, *, is_idempotent: bool) -> bool:
        """Return whether the request can be repeated without a second effect."""
        if not self.is_connection_reused:
            return False
        if not self.is_head_sent:
            return isinstance(self._body, bytes) or not self.is_body_begun
        return is_idempotent and (isinstance(self._body, bytes) or not self.is_body_begun)


class MlflowServer:
    """MLflow's server behind its Unix socket. One per event loop."""

    def __init__(self) -> None:
        self._pooled: httpx.AsyncClient | None = None
        self._unpooled: httpx.AsyncClient | None = None

    def _clients(self) -> tuple[httpx.AsyncClient, httpx.AsyncClient]:
        """Return a client that reuses connections, and one that never does."""
        if self._pooled is None or self._unpooled is None:
            self._pooled, self._unpooled = _client(_LIMITS), _client(_NO_REUSE)
        return self._pooled, self._unpooled

    async def _send(
        self, method: str, url: str, headers: Mapping[str, str], body: Any, *, is_idempotent: bool
    ) -> httpx.Response:
        """Send a request, and once more if a reused connection was lost.

        The server may close a connection at the moment when a request is sent on it.
        """
        pooled, unpooled = self._clients()
        attempt = _Attempt(body)
        request = pooled.build_request(
            method,
            url,
            headers=headers,
            content=attempt.body(),
            extensions={"trace": attempt.trace},
        )
        try:
            return await pooled.send(request, stream=True)
        except _LOST as error:
            if not attempt.may_be_repeated(is_idempotent=is_idempotent):
                raise
            log.info("mlflow_request_repeated", reason=type(error).__name__)
        request = unpooled.build_request(method, url, headers=headers, content=body)
        return await unpooled.send(request, stream=True)

    async def pass_on(
        self,
        scope: Any,
        send: Any,
        *,
        target: str,
        project_id: str,
        body: bytes | AsyncIterator[bytes],
        more: Mapping[str, str] | None = None,
        changes_nothing: bool = False,
    ) -> int:
        """Send a request to MLflow in the name of a project, and stream its response.

        Returns the status. `more` are additional, already checked headers. Requests that change
        nothing may be repeated whatever their method. Raises Refusal if MLflow cannot be reached.
        """
        given = dict(scope["headers"])
        headers = {
            name.decode(): given[name].decode("latin1") for name in _PASSED_ON if name in given
        }
        headers |= more or {}
        headers[WORKSPACE] = project_id
        headers["authorization"] = f"Bearer {settings.SLIPWAY_TRACKING_SECRET}"
        if isinstance(body, bytes):
            headers["content-length"] = str(len(body))
        elif declared := given.get(b"content-length"):
            headers["content-length"] = declared.decode("latin1")
        method = scope["method"]
        try:
            answer = await self._send(
                method,
                f"{_HOST}{target}",
                headers,
                body,
                is_idempotent=changes_nothing or method in _IDEMPOTENT,
            )
        except (httpx.TransportError, httpx.InvalidURL) as error:
            log.warning("mlflow_unavailable", reason=type(error).__name__)
            raise unavailable(
                "MLflow's server does not respond; metrics are still accepted. Try again in a "
                "few seconds."
            ) from error
        try:
            if _CHALLENGE in answer.headers:
                # MLflow refused the portal, not the client: a key was replaced, or users differ.
                log.error("mlflow_rejects_portal", status=answer.status_code)
                raise unavailable(
                    "MLflow's server rejects the portal: keys/tracking.key or the user of one "
                    "of the two processes has changed. Ask an administrator to restart Slipway."
                )
            if answer.status_code >= 500 and _is_page(answer):
                # Its handlers return every error as JSON. A page means that reading the request
                # failed.
                log.warning("mlflow_unexpected_error", target=target[:200])
                raise invalid("MLflow cannot process this request.")
            if answer.status_code >= 400:
                return await _hand_back_error(answer, send, target)
            return await _hand_back(answer, send)
        finally:
            await answer.aclose()


def _client(limits: httpx.Limits) -> httpx.AsyncClient:
    transport = httpx.AsyncHTTPTransport(uds=str(settings.SLIPWAY_TRACKING_SOCKET), limits=limits)
    return httpx.AsyncClient(
        transport=transport, timeout=_PATIENCE, trust_env=False, follow_redirects=False
    )


def _is_page(answer: httpx.Response) -> bool:
    return str(answer.headers.get("content-type", "")).startswith("text/html")


async def _hand_back(answer: httpx.Response, send: Any) -> int:
    headers = [
        (name.encode(), value.encode("latin1"))
        for name, value in answer.headers.items()
        if name in _HANDED_BACK
    ]
    length = answer.headers.get("content-length")
    if length is not None:
        headers.append((b"content-length", length.encode()))
    headers.append((b"x-content-type-options", b"nosniff"))
    start = {"type": "http.response.start", "status": answer.status_code, "headers": headers}
    await send(start)
    async for part in answer.aiter_raw():
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b""})
    return answer.status_code


async def _hand_back_error(answer: httpx.Response, send: Any, target: str) -> int:
    is_failure = answer.status_code >= 500
    content = await _read_and_close(answer) if is_failure else await answer.aread()
    body = clean_error(answer.status_code, content, target)
    kind = str(answer.headers.get("content-type") or "application/json").encode("latin1")
    kind = b"application/json" if body.startswith(b"{") else kind
    headers = [(b"content-type", kind), (b"x-content-type-options", b"nosniff")]
    if answer.status_code == 503:
        headers.append(RETRY_SOON)
    await FullResponse(answer.status_code, body, tuple(headers)).send(send)
    return answer.status_code


async def _read_and_close(answer: httpx.Response) -> bytes:
    """Return the body of an error, and close its connection.

    The server drops a connection after an exception. In the pool it would fail the next request.
    """
    content = b""
    # `aread` would return the connection to the pool with the last byte.
    assert isinstance(answer.stream, httpx.AsyncByteStream)  # noqa: S101  (of an AsyncClient)
    async for part in answer.stream:
        content += part
        if len(content) > _LONGEST_FAILURE:
            break
    await answer.extensions["network_stream"].aclose()
    return content


async def arriving(receive: Any, *, most: int) -> AsyncIterator[bytes]:
    """Yield a body as it arrives. Raises Refusal once it is larger than `most` bytes."""
    size = 0
    while True:
        event = await receive()
        if event["type"] == "http.disconnect":
            raise httpx.ReadError("the client disconnected")
        part = event.get("body", b"")
        size += len(part)
        if size > most:
            raise too_large(most)
        if part:
            yield part
        if not event.get("more_body", False):
            return
