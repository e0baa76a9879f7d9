"""Who comes together goes to the replica together, again and again; who is alone goes at once."""

import asyncio
import http.client
import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from slipway.schemas.serving import EndpointLimits, ReplicaRoute, RevisionRoute, Signature
from tests.workers.machines import eventually
from tests.workers.serving import KEY, SECRET, Plane, endpoint, plane
from workers.gateway.busy_poll import BusyPoll
from workers.gateway.capture import CaptureLog
from workers.gateway.request import Prediction, RequestFormat
from workers.gateway.routing import Endpoint
from workers.serving.wire import (
    NONCE_BYTES,
    FrameReader,
    Kind,
    ResponseFrame,
    Welcome,
    frame,
    pack_answers,
    pack_plain_answers,
    proof,
    unpack_plain_requests,
    unpack_requests,
)

BODY = json.dumps({"inputs": [[1, 2, 3, 4]]}).encode()
HEADERS = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
TOGETHER = 8
PREDICT, SAGEMAKER = "/v1/digits/predict", "/endpoints/digits/invocations"
NONCE = b"n" * NONCE_BYTES
WELCOME = Welcome(
    replica_id="rep-1",
    revision_id="rev-1",
    model="linear",
    model_version="1",
    platform="none",
    signature=Signature(),
    forward_ms=1.0,
    max_rows=64,
)


class Listener:
    """A replica that answers nothing in particular, and keeps how many each frame asked for.

    One that takes plain requests answers them with what they are, once `may_answer`.
    """

    def __init__(self, path: Path, *, takes_plain: bool = False) -> None:
        self.frames: list[int] = []
        self.may_answer = threading.Event()
        self._welcome = WELCOME.model_copy(update={"takes_plain": takes_plain})
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(path))
        self._server.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Hang up."""
        self._server.close()

    def _serve(self) -> None:
        with suppress(OSError):
            connection, _ = self._server.accept()
            with connection:
                self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        reader = FrameReader(1 << 20)
        connection.sendall(frame(Kind.CHALLENGE, NONCE))
        while data := connection.recv(1 << 20):
            for received in reader.feed(data):
                if received.kind == Kind.HELLO:
                    own_proof = proof(b"replica", SECRET, received.payload[:NONCE_BYTES], NONCE)
                    welcome = self._welcome.model_dump_json().encode()
                    connection.sendall(frame(Kind.WELCOME, own_proof + welcome))
                    continue
                if received.kind == Kind.PLAIN_REQUESTS:
                    first, bodies = unpack_plain_requests(received)
                    self.frames.append(len(bodies))
                    self.may_answer.wait(30)
                    connection.sendall(pack_plain_answers(first, 5, bodies))
                    continue
                requests = unpack_requests(received)
                self.frames.append(len(requests))
                answers = [
                    ResponseFrame(request.number, 200, 0, 0, 0, b"{}") for request in requests
                ]
                connection.sendall(pack_answers(answers))


def _revision(path: Path) -> RevisionRoute:
    replica = ReplicaRoute(id="rep-1", address=f"unix:{path}", secret=SECRET)
    return RevisionRoute(
        id="rev-1", model="linear", model_version="1", weight=100, replicas=[replica]
    )


@contextmanager
def _served(listener: Listener, path: Path, **limits: float) -> Iterator[Plane]:
    with plane() as dataplane:
        dataplane.start_gateway()
        given = EndpointLimits.model_validate(limits)
        dataplane.portal.serve(endpoint([_revision(path)], limits=given))
        eventually(lambda: dataplane.get("/v1/digits/ping").status == 200, what="it serves")
        yield dataplane
        listener.close()


def _ask(served: Plane, clients: list[http.client.HTTPConnection]) -> None:
    """Have all ask at once, and all be answered."""
    _send(served, [(client, PREDICT, BODY) for client in clients])
    for client in clients:
        answer = client.getresponse()
        assert (answer.status, answer.read()) == (200, b"{}")


def _send(served: Plane, requests: list[tuple[http.client.HTTPConnection, str, bytes]]) -> None:
    """Have all ask while the gateway looks away, so that they come in one turn of its loop."""
    assert served.gateway is not None
    number = served.gateway.child.pid
    os.kill(number, signal.SIGSTOP)
    # It may be awake at this moment.
    os.waitid(os.P_PID, number, os.WSTOPPED)
    for client, path, body in requests:
        client.request("POST", path, body, HEADERS)
    os.kill(number, signal.SIGCONT)


@pytest.fixture
def plane_of_one() -> Iterator[Plane]:
    with plane() as dataplane:
        replica = dataplane.replica()
        dataplane.start_gateway()
        dataplane.serve(replica)
        yield dataplane


def _clients(dataplane: Plane, count: int = TOGETHER) -> list[http.client.HTTPConnection]:
    return [
        http.client.HTTPConnection("127.0.0.1", dataplane.port, timeout=30) for _ in range(count)
    ]


def _send_all(dataplane: Plane, clients: list[http.client.HTTPConnection], letter: bytes) -> None:
    _send(dataplane, [(client, PREDICT, letter * (at + 1)) for at, client in enumerate(clients)])


@pytest.mark.thorough
def test_each_of_a_plain_frame_is_given_its_own_answer_and_who_was_given_up_none(
    tmp_path: Path,
) -> None:
    path = tmp_path / "r.sock"
    listener = Listener(path, takes_plain=True)
    with _served(listener, path, timeout_s=2.0) as dataplane:
        # Connections have to be there for all to come in one turn, and that has to be expected.
        clients = _clients(dataplane)
        listener.may_answer.set()
        for letter in (b"a", b"b", b"c"):
            _send_all(dataplane, clients, letter)
            bodies = [client.getresponse().read() for client in clients]
        assert bodies == [b"c" * (at + 1) for at in range(TOGETHER)]
        assert listener.frames[-1] == TOGETHER
        listener.may_answer.clear()
        _send_all(dataplane, clients, b"d")
        late = [client.getresponse() for client in clients]
        assert [(answer.status, bool(answer.read())) for answer in late] == [(504, True)] * TOGETHER
        _send_all(dataplane, clients, b"e")
        listener.may_answer.set()
        bodies = [client.getresponse().read() for client in clients]
        assert bodies == [b"e" * (at + 1) for at in range(TOGETHER)]
        for client in clients:
            client.close()


@pytest.mark.thorough
def test_of_those_who_go_together_each_is_answered_as_it_asked(plane_of_one: Plane) -> None:
    rows = [b'{"inputs":[[%d,0,0,0]]}' % at for at in range(5)]
    pairs = [(PREDICT, row) for row in rows]
    odd = [(SAGEMAKER, rows[1]), (PREDICT, b"no JSON"), (PREDICT, b'{"inputs":[]}')]
    for together in (pairs, [*pairs, *odd], odd):
        clients = _clients(plane_of_one, len(together))
        for _ in range(3):
            _send(
                plane_of_one,
                [(sender, *what) for sender, what in zip(clients, together, strict=True)],
            )
            answers = [client.getresponse() for client in clients]
            bodies = [json.loads(answer.read()) for answer in answers]
        for (path, body), answer, content in zip(together, answers, bodies, strict=True):
            assert answer.status == (400 if body == b"no JSON" else 200)
            if answer.status == 200:
                given = json.loads(body)["inputs"]
                assert content["predictions"] == [[2 * sum(row)] * 2 for row in given]
            variant = answer.headers.get("x-amzn-invoked-production-variant")
            assert (variant is not None) == (path == SAGEMAKER)
        for client in clients:
            client.close()


@pytest.mark.thorough
def test_those_who_come_together_again_and_again_go_together(tmp_path: Path) -> None:
    path = tmp_path / "r.sock"
    listener = Listener(path)
    with _served(listener, path) as dataplane:
        clients = _clients(dataplane)
        for client in clients:
            _ask(dataplane, [client])
        assert listener.frames == [1] * TOGETHER
        listener.frames.clear()
        # The first of them cannot be known to be one of many, and goes at once; then it can.
        _ask(dataplane, clients)
        _ask(dataplane, clients)
        _ask(dataplane, clients)
        assert listener.frames == [1, TOGETHER - 1, TOGETHER, TOGETHER]
        listener.frames.clear()
        _ask(dataplane, clients[:1])
        _ask(dataplane, clients)
        assert listener.frames == [1, 1, TOGETHER - 1]
        for client in clients:
            client.close()


def test_who_comes_in_the_turns_that_follow_goes_with_those_before(tmp_path: Path) -> None:
    listener = Listener(tmp_path / "r.sock")

    async def come_one_a_turn() -> None:
        log = CaptureLog(tmp_path / "log", limit_bytes=1 << 20)
        served_endpoint = Endpoint(
            endpoint([_revision(tmp_path / "r.sock")]), log, BusyPoll(lambda: False)
        )
        await asyncio.to_thread(
            eventually, lambda: served_endpoint.is_ready, what="it is connected"
        )
        for _ in range(TOGETHER):
            served_endpoint.admit(Prediction(None, b"", RequestFormat(), BODY, 0.0))
            await asyncio.sleep(0)
        await asyncio.to_thread(eventually, lambda: len(listener.frames) == 2, what="all came")
        served_endpoint.close()
        log.close()

    asyncio.run(come_one_a_turn())
    listener.close()
    assert listener.frames == [1, TOGETHER - 1]
