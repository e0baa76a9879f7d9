"""Requests to the portal, with two outcomes that are not an answer: try again later, or refused."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import httpx
import pydantic

Body = TypeVar("Body", bound=pydantic.BaseModel)
TIMEOUT_S: Final = 10.0
CONNECT_TIMEOUT_S: Final = 5.0
_TRY_LATER: Final = frozenset({408, 425, 429})
_PIECE_BYTES: Final = 1 << 18
_LONGEST_TEXT: Final = 200


class PortalError(Exception):
    """A call to the portal did not succeed."""


class PortalUnreachable(PortalError):
    """No usable response. The same call may be repeated."""


class PortalRefused(PortalError):
    """The portal understood the call and refused it.

    `status` is the HTTP status. `code`, `detail` and `next_step` are those of the problem document.
    """

    def __init__(self, status: int, code: str, detail: str, next_step: str = "") -> None:
        super().__init__(f"{status} {code}: {detail}")
        self.status = status
        self.code = code
        self.detail = detail
        self.next_step = next_step


def parsed(model: type[Body], content: bytes) -> Body:
    """Parse a response. An invalid one did not come from the portal (a proxy's page, say)."""
    try:
        return model.model_validate_json(content)
    except pydantic.ValidationError as error:
        raise PortalUnreachable(f"An answer was no {model.__name__}: {error}") from error


def _check(response: httpx.Response) -> httpx.Response:
    """Return a response that succeeded or is 304. Raises PortalUnreachable or PortalRefused."""
    if response.is_success or response.status_code == httpx.codes.NOT_MODIFIED:
        return response
    try:
        problem = response.json()
        code, detail = str(problem["code"]), str(problem["detail"])
        next_step = str(problem.get("next_step") or "")
    except (ValueError, KeyError, TypeError, AttributeError):
        code, detail, next_step = "unknown", response.text[:_LONGEST_TEXT], ""
    status = response.status_code
    if status >= 500 or status in _TRY_LATER or response.is_redirect:
        raise PortalUnreachable(f"{status} {code}: {detail}")
    raise PortalRefused(status, code, detail, next_step)


def _options(body: pydantic.BaseModel | None, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a request of httpx, with a body as JSON."""
    if body is None:
        return options
    headers = {"Content-Type": "application/json"} | options.pop("headers", {})
    return options | {"content": body.model_dump_json(exclude_none=True), "headers": headers}


def _headers(token: str) -> Mapping[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}


class AsyncPortalClient:
    """Client for an event loop. Paths are relative to `url`, or whole addresses."""

    def __init__(
        self,
        url: str,
        token: str = "",
        *,
        timeout_s: float = TIMEOUT_S,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._client = httpx.AsyncClient(
            base_url=url,
            headers=_headers(token),
            transport=transport,
            timeout=httpx.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S),
            limits=httpx.Limits(max_connections=16, keepalive_expiry=60),
        )

    def use_token(self, token: str) -> None:
        """Authenticate with this token from now on."""
        self._client.headers.update(_headers(token))

    async def request(
        self, method: str, path: str, body: pydantic.BaseModel | None = None, **options: Any
    ) -> httpx.Response:
        """Send a request, with options of httpx. Raises PortalUnreachable or PortalRefused."""
        try:
            response = await self._client.request(method, path, **_options(body, options))
        except httpx.HTTPError as error:
            raise PortalUnreachable(f"{type(error).__name__}: {error}") from error
        return _check(response)

    @asynccontextmanager
    async def stream(self, path: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """The bytes of a response as they come. Raises PortalUnreachable or PortalRefused."""
        try:
            async with self._client.stream("GET", path) as response:
                if response.is_error:
                    await response.aread()
                yield _check(response).aiter_bytes(_PIECE_BYTES)
        except httpx.HTTPError as error:
            raise PortalUnreachable(f"{type(error).__name__}: {error}") from error

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()


class PortalClient:
    """Client for threads. It trusts SSL_CERT_FILE or SSL_CERT_DIR, and uses no proxy."""

    def __init__(self, token: str = "", *, timeout_s: float = TIMEOUT_S) -> None:
        self._client = httpx.Client(
            headers=_headers(token),
            trust_env=False,
            verify=httpx.create_ssl_context(),
            timeout=httpx.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S),
        )

    def use_token(self, token: str) -> None:
        """Authenticate with this token from now on."""
        self._client.headers.update(_headers(token))

    def request(
        self, method: str, url: str, body: pydantic.BaseModel | None = None, **options: Any
    ) -> httpx.Response:
        """Send a request, with options of httpx. Raises PortalUnreachable or PortalRefused."""
        try:
            response = self._client.request(method, url, **_options(body, options))
        except httpx.HTTPError as error:
            raise PortalUnreachable(f"{type(error).__name__}: {error}") from error
        return _check(response)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
