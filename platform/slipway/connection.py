"""One server and one token: requests out, typed answers and errors back."""

import platform
import random
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Protocol, Self, TypeVar
from urllib.parse import quote

import httpx
from pydantic import TypeAdapter, ValidationError

from slipway.errors import (
    ConnectionFailed,
    InvalidInput,
    SlipwayError,
    UnexpectedAnswer,
    error_for,
)
from slipway.retries import RETRIED_STATUSES, Retries, retry_after_s
from slipway.sanitize import visible
from slipway.schemas.base import NEXT_CURSOR, AnswerSchema, RequestSchema
from slipway.schemas.problem import Problem
from slipway.version import __version__

Answer = TypeVar("Answer", bound=AnswerSchema)
Shape = TypeVar("Shape")
Query = Mapping[str, str | int | Sequence[str] | None]
USER_AGENT = f"slipway/{__version__} python/{platform.python_version()} {sys.platform}"
_REPEATABLE = frozenset({"GET", "PUT", "DELETE", "POST"})  # POST carries an Idempotency-Key
_NOTHING_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


def address(*segments: str) -> str:
    """Join `segments` into a path. Each stays one segment whatever characters it holds."""
    for segment in segments:
        if segment in ("", ".", ".."):
            raise InvalidInput(
                f"{segment!r} is not a name or id.",
                next_step="Name the object, for example by its slug.",
            )
    return "/" + "/".join(quote(segment, safe="") for segment in segments)


class Upload(Protocol):
    """A body that can be sent again from its beginning: what `Connection.upload` takes."""

    @property
    def digest(self) -> str:
        """SHA-256 of the whole body, 64 hex digits."""

    @property
    def size_bytes(self) -> int:
        """Its size."""

    def pieces(self) -> Iterator[bytes]:
        """Yield the body from its beginning."""


class _UploadBody:
    """Pieces of an upload, from the start on each attempt. Reports the number of bytes sent."""

    def __init__(self, content: Upload, progress: Callable[[int], None] | None) -> None:
        self._content = content
        self._progress = progress

    def __iter__(self) -> Iterator[bytes]:
        sent_bytes = 0
        for piece in self._content.pieces():
            yield piece
            sent_bytes += len(piece)
            if self._progress is not None:
                self._progress(sent_bytes)


class Download:
    """Response body being received. Iterate over it to get its bytes in pieces.

    A body that ends too early raises ConnectionFailed.
    """

    def __init__(
        self, response: httpx.Response, explain: Callable[[httpx.RequestError], SlipwayError]
    ) -> None:
        self._response = response
        self._explain = explain

    @property
    def size_bytes(self) -> int | None:
        """The whole size in bytes, where the server knows it beforehand."""
        headers = self._response.headers
        text = headers.get("content-length", "")
        # The size of a compressed body differs from the number of bytes returned.
        return int(text) if text.isdecimal() and "content-encoding" not in headers else None

    def header(self, name: str) -> str:
        """Return a header of the answer, "" where it has none of that name."""
        value: str = self._response.headers.get(name, "")
        return value

    def number(self, name: str, default: int | None) -> int | None:
        """Return a header that holds a whole number, `default` where it does not."""
        text = self.header(name)
        return int(text) if text.isdecimal() else default

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._response.iter_bytes()
        except httpx.RequestError as error:
            raise self._explain(error) from None


class Connection:
    """Sends requests of one token to one server. Used by `Client` and its resources."""

    def __init__(
        self,
        url: str,
        token: str | None,
        *,
        timeout_s: float,
        retries: Retries,
        transport: httpx.BaseTransport | None,
    ) -> None:
        headers = {"User-Agent": USER_AGENT, "Accept": "application/json"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        self.url = url
        self._retries = retries
        # A redirect is never followed: it could carry the token to another server.
        self._http = httpx.Client(
            base_url=f"{url}/api/v1",
            headers=headers,
            timeout=timeout_s,
            transport=transport,
            follow_redirects=False,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections that stay open between requests."""
        self._http.close()

    def fetch(
        self,
        schema: type[Answer],
        method: str,
        *segments: str,
        query: Query | None = None,
        body: RequestSchema | None = None,
    ) -> Answer:
        """Send one request and return its answer as `schema`, or raise SlipwayError."""
        request = self._request(method, segments, query, body)
        return self._read(TypeAdapter(schema), request)

    def fetch_list(
        self, schema: type[Answer], *segments: str, query: Query | None = None
    ) -> list[Answer]:
        """Return a whole list, with one GET for each part of it, or raise SlipwayError."""
        shape: TypeAdapter[list[Answer]] = TypeAdapter(list[schema])  # type: ignore[valid-type]
        items: list[Answer] = []
        cursor: str | None = None
        while True:
            rest = {"cursor": cursor} if cursor else {}
            request = self._request("GET", segments, {**(query or {}), **rest}, None)
            part, headers = self._read_with_headers(shape, request)
            items += part
            following = headers.get(NEXT_CURSOR)
            if not following or not part or following == cursor:
                return items
            cursor = following

    def upload(
        self,
        schema: type[Answer],
        *segments: str,
        content: Upload,
        progress: Callable[[int], None] | None = None,
        query: Query | None = None,
    ) -> Answer:
        """POST a file in pieces, in constant memory, or raise SlipwayError.

        `progress` receives the number of bytes sent, from 0 again on each attempt.
        """
        # No Idempotency-Key: the digest identifies the file if it is sent more than once.
        request = self._http.build_request(
            "POST",
            address(*segments),
            params=query,
            content=_UploadBody(content, progress),
            headers={
                "X-Request-Id": _new_request_id(),
                "Content-Type": "application/octet-stream",
                "Content-Length": str(content.size_bytes),
                **({"X-Slipway-Sha256": content.digest} if content.digest else {}),
            },
        )
        return self._read(TypeAdapter(schema), request)

    def put(
        self, *segments: str, content: Upload, progress: Callable[[int], None] | None = None
    ) -> None:
        """PUT a file at a URL of the server outside its API, or raise SlipwayError."""
        request = self._http.build_request(
            "PUT",
            f"{self.url}{address(*segments)}",
            content=_UploadBody(content, progress),
            headers={
                "X-Request-Id": _new_request_id(),
                "Content-Type": "application/octet-stream",
                "Content-Length": str(content.size_bytes),
            },
        )
        self._answer(request)

    def send(
        self,
        method: str,
        *segments: str,
        query: Query | None = None,
        body: RequestSchema | None = None,
    ) -> None:
        """Send one request whose answer has no content, or raise SlipwayError."""
        self._answer(self._request(method, segments, query, body))

    @contextmanager
    def stream(
        self,
        *segments: str,
        query: Query | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Iterator["Download"]:
        """Open a GET whose body is read piece by piece, or raise SlipwayError.

        `timeout_s` bounds each wait for bytes where that differs from the client's own.
        """
        request = self._request("GET", segments, query, None)
        request.headers.update(headers or {})
        if timeout_s is not None:
            request.extensions["timeout"] = httpx.Timeout(timeout_s).as_dict()
        response = self._answer(request, stream=True)
        try:
            yield Download(response, lambda error: self._connection_error(request, error))
        finally:
            response.close()

    def _read(self, shape: TypeAdapter[Shape], request: httpx.Request) -> Shape:
        """Send `request` and return its answer in the given shape."""
        return self._read_with_headers(shape, request)[0]

    def _read_with_headers(
        self, shape: TypeAdapter[Shape], request: httpx.Request
    ) -> tuple[Shape, httpx.Headers]:
        response = self._answer(request)
        try:
            return shape.validate_json(response.content), response.headers
        except ValidationError as error:
            # The response may hold a secret, so only the locations of errors are reported.
            places = visible(
                ", ".join(sorted({_dotted_path(fault["loc"]) for fault in error.errors()}))
            )
            raise UnexpectedAnswer(
                f"The answer of {self.url} does not have the expected shape"
                f"{f' (at {places})' if places else ''}.",
                status=response.status_code,
                next_step="Check that the address is that of a Slipway server, and that the "
                "server and this SDK are of the same version.",
                request_id=_request_id(request),
            ) from None

    def _request(
        self,
        method: str,
        segments: tuple[str, ...],
        query: Query | None,
        body: RequestSchema | None,
    ) -> httpx.Request:
        headers = {"X-Request-Id": _new_request_id()}
        content: str | None = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            content = body.model_dump_json(exclude_unset=True)
        if method == "POST":
            headers["Idempotency-Key"] = secrets.token_hex(16)
        given = {name: value for name, value in (query or {}).items() if value is not None}
        return self._http.build_request(
            method, address(*segments), params=given, content=content, headers=headers
        )

    def _answer(self, request: httpx.Request, *, stream: bool = False) -> httpx.Response:
        """Send `request`, again where that is safe, and return the answer that was a success."""
        attempt = 0
        answer_lost = False
        while True:
            attempt += 1
            asked_s: int | None = None
            try:
                response = self._http.send(request, stream=stream)
            except httpx.RequestError as error:
                nothing_sent = isinstance(error, _NOTHING_SENT)
                answer_lost = answer_lost or not nothing_sent
                failure: SlipwayError = self._connection_error(request, error)
                again = nothing_sent or request.method in _REPEATABLE
                again = again and isinstance(error, httpx.TransportError)
            else:
                if response.is_success:
                    return response
                if response.status_code == 404 and request.method == "DELETE" and answer_lost:
                    return response  # an earlier attempt, whose response was lost, removed it
                asked_s = retry_after_s(response.headers)
                failure = self._refusal(request, response, asked_s)
                refused = response.status_code == 429  # nothing was done: any method can be retried
                answer_lost = answer_lost or response.status_code in (502, 504)
                again = response.status_code in RETRIED_STATUSES
                again = again and (refused or request.method in _REPEATABLE)
            wait = self._retries.wait_s(attempt, asked_s=asked_s, jitter=random.random())  # noqa: S311
            if not again or wait is None:
                raise failure from None
            time.sleep(wait)

    def _refusal(
        self, request: httpx.Request, response: httpx.Response, asked_s: int | None
    ) -> SlipwayError:
        """Return the error that `response`, which is not a success, explains."""
        try:
            content = response.read()
        except httpx.RequestError:
            content = b""
        finally:
            response.close()
        if response.is_redirect:
            return UnexpectedAnswer(
                f"{self.url} answered with a redirect, which is not followed with a token.",
                status=response.status_code,
                next_step="Use the address the server is really reached at (https instead of "
                "http, perhaps).",
                request_id=_request_id(request),
            )
        is_json = "json" in response.headers.get("content-type", "")
        return error_for(
            response.status_code,
            _problem_in(content, response.status_code) if is_json else None,
            request_id=response.headers.get("x-request-id") or _request_id(request),
            retry_after_s=asked_s,
        )

    def _connection_error(self, request: httpx.Request, error: httpx.RequestError) -> SlipwayError:
        if isinstance(error, httpx.TimeoutException):
            reason = "it did not answer in time"
        elif isinstance(error, httpx.ConnectError):
            reason = f"it cannot be reached ({visible(str(error))})"
        elif isinstance(error, httpx.TransportError):
            reason = f"the connection broke ({visible(str(error))})"
        else:
            return UnexpectedAnswer(
                f"The answer of {self.url} cannot be decoded ({visible(str(error))}).",
                next_step="Check that the address is that of a Slipway server.",
                request_id=_request_id(request),
            )
        return ConnectionFailed(
            f"No answer from {self.url}: {reason}.",
            next_step="Check the address and the network, and that the server runs.",
            request_id=_request_id(request),
        )


class _MlflowRefusal(AnswerSchema):
    """Error response of the server's MLflow API, which receives model files."""

    error_code: str
    message: str


def _problem_in(content: bytes, status: int) -> Problem | None:
    """Return what a refusal says, None where it does not speak like a Slipway server."""
    try:
        return Problem.model_validate_json(content)
    except ValidationError:
        pass
    try:
        mlflow_refusal = _MlflowRefusal.model_validate_json(content)
    except ValidationError:
        return None
    return Problem(
        type="about:blank",
        title="Refused",
        status=status,
        detail=mlflow_refusal.message,
        code=mlflow_refusal.error_code.lower(),
    )


def _dotted_path(location: tuple[int | str, ...]) -> str:
    return ".".join(map(str, location))


def _request_id(request: httpx.Request) -> str:
    return request.headers["X-Request-Id"]


def _new_request_id() -> str:
    return f"sdk-{secrets.token_hex(10)}"
