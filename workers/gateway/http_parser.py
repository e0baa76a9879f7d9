"""Strict parser of the head of an HTTP/1.1 request: anything ambiguous is refused.

Every line has to follow RFC 9112 and end with CRLF. Refused, among others: a line break that is not
CRLF, folded lines, spaces before a colon, control characters, a length beside a Transfer-Encoding,
two lengths, a coding other than `chunked`, a missing or second Host. This prevents request
smuggling: no proxy in front can see other borders between requests than the gateway.
"""

import re
from dataclasses import dataclass
from typing import Final

MAX_HEAD_BYTES: Final = 16 * 1024
MAX_HEADERS: Final = 100
_REQUEST_LINE: Final = re.compile(rb"([A-Z]{3,10}) (/[!-~]{0,2047}) HTTP/1\.([01])")
_HEADER: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([ -~\t\x80-\xff]*)")
_LENGTH: Final = re.compile(rb"[0-9]{1,15}")
_ONCE: Final = frozenset(
    {
        *(b"host", b"content-length", b"transfer-encoding", b"authorization", b"content-type"),
        *(b"inference-header-content-length", b"content-encoding", b"expect"),
    }
)


class BadRequest(Exception):
    """The bytes are not a request that the gateway accepts.

    The connection closes after the response.
    """

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Head:
    """A request's first line and headers, names in lower case. `length` is 0 when chunked."""

    method: bytes
    path: bytes
    headers: dict[bytes, bytes]
    length: int
    is_chunked: bool
    keep_alive: bool
    is_old: bool

    @property
    def expects_continue(self) -> bool:
        """True if the client waits for 100 Continue before it sends the body."""
        return b"expect" in self.headers


def read_head(block: bytes) -> Head:
    """Parse the bytes before the empty line. Raise BadRequest if they are not valid."""
    lines = block.split(b"\r\n")
    match = _REQUEST_LINE.fullmatch(lines[0])
    if match is None:
        raise _malformed("The first line is not an HTTP/1.1 request line")
    if len(lines) - 1 > MAX_HEADERS:
        raise BadRequest(431, "too_many_headers", f"There are more than {MAX_HEADERS} headers.")
    headers = _headers(lines[1:])
    is_old = match[3] == b"0"
    if b"host" not in headers and not is_old:
        raise _malformed("There is no Host header")
    length, is_chunked = _framing(headers, is_old=is_old)
    expect = headers.get(b"expect")
    if expect is not None and expect.lower() != b"100-continue":
        raise BadRequest(417, "expectation_failed", "Only `Expect: 100-continue` is supported.")
    connection = {part.strip().lower() for part in headers.get(b"connection", b"").split(b",")}
    keep_alive = b"keep-alive" in connection if is_old else b"close" not in connection
    path = match[2].partition(b"?")[0]
    return Head(match[1], path, headers, length, is_chunked, keep_alive, is_old)


def _headers(lines: list[bytes]) -> dict[bytes, bytes]:
    headers: dict[bytes, bytes] = {}
    for line in lines:
        match = _HEADER.fullmatch(line)
        if match is None:
            raise _malformed("A header line is malformed")
        name, value = match[1].lower(), match[2].rstrip(b" \t")
        if name in headers:
            if name in _ONCE:
                raise _malformed(f"There is more than one {name.decode()} header")
            value = headers[name] + b", " + value
        headers[name] = value
    return headers


def _framing(headers: dict[bytes, bytes], *, is_old: bool) -> tuple[int, bool]:
    length, coding = headers.get(b"content-length"), headers.get(b"transfer-encoding")
    if coding is not None:
        if length is not None:
            raise _malformed("There are both a Content-Length and a Transfer-Encoding")
        if is_old or coding.lower() != b"chunked":
            raise BadRequest(
                501, "not_implemented", "The only supported Transfer-Encoding is chunked."
            )
        return 0, True
    if length is None:
        return 0, False
    if not _LENGTH.fullmatch(length):
        raise _malformed("The Content-Length is not a number")
    return int(length), False


def _malformed(what: str) -> BadRequest:
    return BadRequest(400, "malformed_request", f"{what}.")


class ChunkedBody:
    """Strict decoder of a chunked body. Trailers are refused, chunk extensions are skipped."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._held = bytearray()
        self._pieces: list[bytes] = []
        self._size = 0
        self._left = -1

    def feed(self, data: bytes) -> tuple[bytes, bytes] | None:
        """Return the body and the bytes after it once complete, else None. Raise BadRequest."""
        self._held += data
        while True:
            if self._left < 0 and not self._next_chunk():
                return None
            if self._left == 0:
                if len(self._held) < 2:
                    return None
                if self._held[:2] != b"\r\n":
                    raise _malformed("There are trailers after the chunked body")
                return b"".join(self._pieces), bytes(self._held[2:])
            if len(self._held) < self._left + 2:
                return None
            if self._held[self._left : self._left + 2] != b"\r\n":
                raise _malformed("A chunk does not match its size")
            self._pieces.append(bytes(self._held[: self._left]))
            del self._held[: self._left + 2]
            self._left = -1

    def _next_chunk(self) -> bool:
        end = self._held.find(b"\r\n", 0, 300)
        if end < 0:
            if len(self._held) > 256:
                raise _malformed("The line of a chunk is too long")
            return False
        size, _, extension = bytes(self._held[:end]).partition(b";")
        if not re.fullmatch(rb"[0-9a-fA-F]{1,8}", size) or not re.fullmatch(rb"[!-~]*", extension):
            raise _malformed("The size of a chunk is not a number")
        self._left = int(size, 16)
        self._size += self._left
        if self._size > self._limit:
            raise BadRequest(
                413, "body_too_large", f"The body is larger than {self._limit} bytes, the limit."
            )
        del self._held[: end + 2]
        return True
