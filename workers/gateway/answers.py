"""HTTP responses as bytes."""

from http import HTTPStatus
from typing import Any, Final

import orjson

from workers.serving.problem import problem_body

JSON: Final = b"application/json"
PROBLEM: Final = b"application/problem+json"
BINARY: Final = b"application/octet-stream"
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_LINES: Final = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\nserver: slipway\r\n".encode()
    for status in HTTPStatus
}


def head_start(status: int, content_type: bytes) -> bytes:
    """Return the first lines of a response, including its content type."""
    return _LINES[status] + b"content-type: " + content_type + b"\r\n"


def answer(
    status: int,
    body: bytes,
    content_type: bytes = JSON,
    headers: bytes = b"",
    *,
    close: bool = False,
) -> bytes:
    """Return a complete HTTP response. `headers` are lines that each end with CRLF."""
    last = b"connection: close\r\n" if close else b""
    start = head_start(status, content_type)
    return b"%b%b%bcontent-length: %d\r\n\r\n%b" % (start, headers, last, len(body), body)


def json_answer(body: Any, status: int = 200) -> bytes:
    """Return a JSON response."""
    return answer(status, orjson.dumps(body))


def problem(
    status: int,
    code: str,
    detail: str,
    next_step: str | None = None,
    *,
    retry_after_s: int | None = None,
    close: bool = False,
    headers: bytes = b"",
) -> bytes:
    """Return an error response that clients of every contract can parse."""
    if retry_after_s is not None:
        headers += b"retry-after: %d\r\n" % retry_after_s
    if status == 401:
        headers += b'www-authenticate: Bearer realm="slipway"\r\n'
    return answer(
        status, problem_body(status, code, detail, next_step), PROBLEM, headers, close=close
    )


def end(length: int) -> bytes:
    """Return the end of a response head: the CRLF of the last line and the content length."""
    return b"\r\ncontent-length: %d\r\n\r\n" % length


# Precomputed for short responses.
ENDS: Final = {length: end(length) for length in range(4096)}
NOT_FOUND: Final = problem(
    404,
    "not_found",
    "Not found.",
    "Predictions are at POST /v1/ENDPOINT/predict; GET /v1/ENDPOINT describes the inputs.",
)
