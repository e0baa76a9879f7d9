"""What two HTTP parsers could read in two ways, the gateway refuses, and closes the connection."""

import socket
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from slipway.schemas.serving import EndpointLimits
from tests.workers.serving import KEY, Plane, plane

HEAD = f"POST /v1/digits/predict HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {KEY}\r\n".encode()
BODY = b'{"inputs": [[1, 2, 3, 4]]}'
GOOD = HEAD + b"Content-Length: %d\r\n\r\n%b" % (len(BODY), BODY)
LIMIT = 100_000


@pytest.fixture(scope="module")
def served() -> Iterator[Plane]:
    """A gateway with one endpoint that takes bodies of 100 kB."""
    with plane() as dataplane:
        replica = dataplane.replica()
        dataplane.start_gateway("--head-within-s", "2")
        dataplane.serve(replica, limits=EndpointLimits(max_body_bytes=LIMIT))
        yield dataplane


class Wire:
    """A raw connection."""

    def __init__(self, served: Plane) -> None:
        self.socket = socket.create_connection(("127.0.0.1", served.port), timeout=15)

    def send(self, *pieces: bytes) -> "Wire":
        """Write each piece by itself."""
        for piece in pieces:
            with suppress(BrokenPipeError, ConnectionResetError):
                self.socket.sendall(piece)
        return self

    def until_closed(self) -> bytes:
        """Read all there is until the gateway closes."""
        received = b""
        with suppress(ConnectionResetError):
            while piece := self.socket.recv(65536):
                received += piece
        self.socket.close()
        return received

    def expect_nothing(self, within_s: float) -> bytes:
        """Read, and raise TimeoutError when nothing comes."""
        self.socket.settimeout(within_s)
        try:
            return self.socket.recv(65536)
        finally:
            self.socket.settimeout(15)

    def answers(self, count: int) -> bytes:
        """Read until that many answers of predictions have come."""
        received = b""
        while received.count(b"]]}") < count:
            piece = self.socket.recv(65536)
            assert piece, received
            received += piece
        return received


@pytest.mark.parametrize(
    "request_bytes",
    [
        pytest.param(HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", id="both"),
        pytest.param(HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n", id="two lengths"),
        pytest.param(HEAD + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\n", id="same twice"),
        pytest.param(HEAD + b"Content-Length: 5, 5\r\n\r\n", id="length list"),
        pytest.param(HEAD + b"Content-Length: +5\r\n\r\n", id="signed"),
        pytest.param(HEAD + b"Content-Length: 0x5\r\n\r\n", id="hex"),
        pytest.param(HEAD + b"Content-Length: -1\r\n\r\n", id="negative"),
        pytest.param(HEAD + b"Content-Length : 5\r\n\r\n", id="blank before colon"),
        pytest.param(HEAD + b" Content-Length: 5\r\n\r\n", id="folded"),
        pytest.param(HEAD + b"X: a\r\n\tb\r\n\r\n", id="folded value"),
        pytest.param(HEAD + b"X: a\nContent-Length: 5\r\n\r\n", id="bare line feed"),
        pytest.param(HEAD + b"X: a\rContent-Length: 5\r\n\r\n", id="bare return"),
        pytest.param(HEAD + b"X: a\x00b\r\n\r\n", id="NUL"),
        pytest.param(HEAD + b"Transfer-Encoding: xchunked\r\n\r\n", id="other coding"),
        pytest.param(HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n", id="two codings"),
        pytest.param(HEAD + b"Transfer-Encoding: identity\r\n\r\n", id="identity"),
        pytest.param(HEAD + b"Transfer-Encoding: chunked\r\n" * 2 + b"\r\n", id="coding twice"),
        pytest.param(HEAD + b"Transfer\x0b-Encoding: chunked\r\n\r\n", id="odd name"),
        pytest.param(HEAD + b"Host: b\r\n\r\n", id="two hosts"),
        pytest.param(b"POST /invocations HTTP/1.1\r\n\r\n", id="no host"),
        pytest.param(b"POST  /invocations HTTP/1.1\r\nHost: a\r\n\r\n", id="two blanks"),
        pytest.param(b"POST /invocations HTTP/1.1 \r\nHost: a\r\n\r\n", id="blank at the end"),
        pytest.param(b"POST /invocations HTTP/2.0\r\nHost: a\r\n\r\n", id="other version"),
        pytest.param(b"POST http://a/invocations HTTP/1.1\r\nHost: a\r\n\r\n", id="absolute"),
        pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", id="HTTP/2"),
        pytest.param(b"\x16\x03\x01\x00\xa5" + bytes(100), id="TLS"),
        pytest.param(b"\r\n\r\n" + GOOD, id="empty lines first"),
    ],
)
def test_a_request_that_can_be_read_in_two_ways_is_refused(
    served: Plane, request_bytes: bytes
) -> None:
    answer = Wire(served).send(request_bytes + GOOD).until_closed()
    assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 501")), answer[:200]
    # What followed was not taken for a request.
    assert answer.count(b"server: slipway") == 1
    assert b"connection: close" in answer


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"5\r\nhelloX\r\n0\r\n\r\n", id="too long"),
        pytest.param(b"-5\r\nhello\r\n0\r\n\r\n", id="negative"),
        pytest.param(b"0x5\r\nhello\r\n0\r\n\r\n", id="prefixed"),
        pytest.param(b" 5\r\nhello\r\n0\r\n\r\n", id="blank"),
        pytest.param(b"5;\x00\r\nhello\r\n0\r\n\r\n", id="odd extension"),
        pytest.param(b"0\r\nX: trailer\r\n\r\n", id="trailer"),
        pytest.param(b"F" * 400 + b"\r\n", id="endless size"),
        pytest.param(b"5;" + b"a" * 400, id="endless extension"),
    ],
)
def test_a_malformed_chunk_is_refused(served: Plane, body: bytes) -> None:
    answer = Wire(served).send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + body).until_closed()
    assert answer.startswith(b"HTTP/1.1 400"), answer[:200]
    assert answer.count(b"server: slipway") == 1


def test_chunks_are_put_together_wherever_they_are_cut(served: Plane) -> None:
    chunked = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    chunked += b"".join(b"%x;x=1\r\n%c\r\n" % (1, byte) for byte in BODY) + b"0\r\n\r\n"
    wire = Wire(served).send(chunked + chunked)
    assert wire.answers(2).count(b"[[20.0,20.0]]") == 2
    wire.send(*(chunked[at : at + 7] for at in range(0, len(chunked), 7)))
    assert b"[[20.0,20.0]]" in wire.answers(1)
    wire.socket.close()


def test_a_hundred_pipelined_requests_are_answered_in_order(served: Plane) -> None:
    requests = []
    for number in range(100):
        body = b'{"inputs": [[%d, 0, 0, 0]]}' % number
        requests.append(HEAD + b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        requests.append(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
    wire = Wire(served).send(b"".join(requests))
    answers = wire.answers(100)
    places = [answers.index(b"[[%.1f,%.1f]]" % (2 * n, 2 * n)) for n in range(100)]
    assert places == sorted(places)
    wire.socket.close()


def test_a_request_is_understood_byte_by_byte(served: Plane) -> None:
    wire = Wire(served).send(*(GOOD[at : at + 1] for at in range(len(GOOD))))
    assert b"[[20.0,20.0]]" in wire.answers(1)
    wire.socket.close()


def test_a_head_that_was_seen_before_is_no_request_before_it_is_whole(served: Plane) -> None:
    length = len(HEAD) + 17
    body = BODY.ljust(length)
    head = HEAD + b"Content-Length: %d" % length
    # All but the end of the head is there, and it is as long as if that were missing at its end.
    assert len(head + b"\r") == 3 + length
    wire = Wire(served)
    for _ in range(3):
        wire.send(head + b"\r\n\r\n" + body)
        assert b"[[20.0,20.0]]" in wire.answers(1)
        wire.send(head + b"\r")
        with pytest.raises(TimeoutError):
            wire.expect_nothing(0.1)
        wire.send(b"\n\r\n", body)
        assert b"[[20.0,20.0]]" in wire.answers(1)
    wire.socket.close()


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (HEAD + b"X: " + b"a" * 20_000 + b"\r\n\r\n", b"431"),
        (HEAD + b"".join(b"X%d: a\r\n" % n for n in range(101)) + b"\r\n", b"431"),
        (HEAD + b"Content-Length: 100000000\r\n\r\n", b"413"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nFFFFFFF\r\n", b"413"),
        (HEAD + b"Expect: 200-ok\r\nContent-Length: 1\r\n\r\n", b"417"),
    ],
)
def test_what_is_too_large_is_refused_before_it_is_read(
    served: Plane, request_bytes: bytes, status: bytes
) -> None:
    answer = Wire(served).send(request_bytes, b"x" * 100_000).until_closed()
    assert answer.startswith(b"HTTP/1.1 " + status), answer[:200]


def test_a_hundred_megabytes_cost_no_memory(served: Plane) -> None:
    wire = Wire(served).send(HEAD + b"Content-Length: 104857600\r\n\r\n")
    wire.send(*[bytes(1 << 20)] * 20)
    assert wire.until_closed().startswith(b"HTTP/1.1 413")
    assert served.predict([[1, 2, 3, 4]]).status == 200


def test_who_waits_for_continue_is_told_or_refused(served: Plane) -> None:
    head = HEAD + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(BODY)
    wire = Wire(served).send(head)
    assert wire.socket.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert b"[[20.0,20.0]]" in wire.send(BODY).answers(1)
    wire.socket.close()
    refused = Wire(served).send(head.replace(KEY.encode(), b"wrong")).until_closed()
    assert refused.startswith(b"HTTP/1.1 401")


@pytest.mark.thorough
def test_slow_clients_are_closed_and_hold_nobody_up(served: Plane) -> None:
    slow = [Wire(served).send(HEAD[:20]) for _ in range(50)]
    began = time.monotonic()
    assert served.predict([[1, 2, 3, 4]]).status == 200
    assert time.monotonic() - began < 2
    # Two seconds, and the second in which the gateway looks.
    assert slow[0].until_closed().startswith(b"HTTP/1.1 408")
    assert time.monotonic() - began < 6
    for wire in slow[1:]:
        wire.socket.close()


def test_a_client_that_reads_nothing_is_served_no_more(served: Plane) -> None:
    wire = Wire(served)
    wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    wire.socket.settimeout(0.5)
    request = b"GET /v1/digits/openapi.json HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer "
    request += KEY.encode() + b"\r\n\r\n"
    with suppress(TimeoutError):
        for _ in range(300):
            wire.socket.sendall(request * 500)
        raise AssertionError("the gateway reads on from who does not listen")
    assert served.predict([[1, 2, 3, 4]]).status == 200
    wire.socket.close()


def test_an_answer_after_close_was_asked_is_the_last(served: Plane) -> None:
    closing = GOOD.replace(b"Host: a\r\n", b"Host: a\r\nConnection: close\r\n")
    answers = Wire(served).send(closing + GOOD).until_closed()
    assert answers.count(b"HTTP/1.1 200") == 1
    old = GOOD.replace(b"HTTP/1.1", b"HTTP/1.0")
    assert Wire(served).send(old).until_closed().count(b"HTTP/1.1 200") == 1


@pytest.mark.parametrize(
    "path", ["/v1/digits/../digits/predict", "/v1/%64igits/predict", "//v1/digits/predict", "/v1/"]
)
def test_paths_are_what_they_are(served: Plane, path: str) -> None:
    assert served.predict([[1, 2, 3, 4]], path).status == 404
