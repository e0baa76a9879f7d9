"""Who comes together goes to the replica together, again and again; who is alone goes at once."""

import http.client
import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from slipway.schemas.serving import ReplicaRoute, RevisionRoute, Signature
from tests.workers.machines import eventually
from tests.workers.serving import KEY, SECRET, Plane, endpoint, plane
from workers.serving.wire import (
    NONCE_BYTES,
    Answered,
    FrameReader,
    Kind,
    Welcome,
    frame,
    pack_answers,
    proof,
    unpack_requests,
)

BODY = json.dumps({"inputs": [[1, 2, 3, 4]]}).encode()
HEADERS = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
TOGETHER = 8
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
    """A replica that answers nothing in particular, and keeps how many each frame asked for."""

    def __init__(self, path: Path) -> None:
        self.frames: list[int] = []
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
                    mine = proof(b"replica", SECRET, received.payload[:NONCE_BYTES], NONCE)
                    told = WELCOME.model_dump_json().encode()
                    connection.sendall(frame(Kind.WELCOME, mine + told))
                    continue
                asked = unpack_requests(received)
                self.frames.append(len(asked))
                said = [Answered(one.number, 200, 0, 0, 0, b"{}") for one in asked]
                connection.sendall(pack_answers(said))


@contextmanager
def _served(listener: Listener, path: Path) -> Iterator[Plane]:
    with plane() as found:
        found.start_gateway()
        replica = ReplicaRoute(id="rep-1", address=f"unix:{path}", secret=SECRET)
        revision = RevisionRoute(
            id="rev-1", model="linear", model_version="1", weight=100, replicas=[replica]
        )
        found.portal.serve(endpoint([revision]))
        eventually(lambda: found.get("/v1/digits/ping").status == 200, what="it serves")
        yield found
        listener.close()


def _ask(served: Plane, clients: list[http.client.HTTPConnection]) -> None:
    """Have all ask while the gateway looks away, so that they come in one turn of its loop."""
    assert served.gateway is not None
    number = served.gateway.child.pid
    os.kill(number, signal.SIGSTOP)
    # It may be awake at this moment.
    os.waitid(os.P_PID, number, os.WSTOPPED)
    for client in clients:
        client.request("POST", "/v1/digits/predict", BODY, HEADERS)
    os.kill(number, signal.SIGCONT)
    for client in clients:
        answer = client.getresponse()
        assert (answer.status, answer.read()) == (200, b"{}")


def test_those_who_come_together_again_and_again_go_together(tmp_path: Path) -> None:
    path = tmp_path / "r.sock"
    listener = Listener(path)
    with _served(listener, path) as found:
        clients = [
            http.client.HTTPConnection("127.0.0.1", found.port, timeout=30) for _ in range(TOGETHER)
        ]
        for client in clients:
            _ask(found, [client])
        assert listener.frames == [1] * TOGETHER
        listener.frames.clear()
        # The first of them cannot be known to be one of many, and goes at once; then it can.
        _ask(found, clients)
        _ask(found, clients)
        _ask(found, clients)
        assert listener.frames == [1, TOGETHER - 1, TOGETHER, TOGETHER]
        listener.frames.clear()
        _ask(found, clients[:1])
        _ask(found, clients)
        assert listener.frames == [1, 1, TOGETHER - 1]
        for client in clients:
            client.close()
