"""The rank that serves a shard: a listener, and a thread for each worker's connection."""

import contextlib
import logging
import socket
import threading
from collections.abc import Callable

from slipway.distributed.parameter_server import wire
from slipway.distributed.parameter_server.shard import Shard, ShardState
from slipway.distributed.parameter_server.shards import PackedShard, ShardLayout
from slipway.distributed.parameter_server.wire import Frame, Operation

logger = logging.getLogger(__name__)


class Server:
    """Answers workers until it is closed. `address` is where it listens."""

    def __init__(
        self,
        shard: Shard,
        layout: ShardLayout,
        *,
        host: str,
        secret: bytes,
        workers: int,
    ) -> None:
        self._shard = shard
        self._layout = layout
        self._secret = secret
        self._workers = workers
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family, backlog=max(16, workers))
        self.address: tuple[str, int] = (host, self._listener.getsockname()[1])
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._start(self._listen)

    def close(self) -> None:
        """Stop listening and drop all connections."""
        with self._lock:
            open_sockets = [self._listener, *self._connections]
            self._connections.clear()
        for held in open_sockets:
            with contextlib.suppress(OSError):
                held.shutdown(socket.SHUT_RDWR)
            held.close()

    def _start(self, work: Callable[[], None]) -> None:
        # A daemon, so that a rank that fails elsewhere does not wait for its connections.
        threading.Thread(target=work, name="parameter-server", daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return  # the listener was closed
            self._start(lambda held=connection: self._serve(held))  # type: ignore[misc]

    def _serve(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.add(connection)
        try:
            worker = self._admit(connection)
            if worker is not None:
                self._converse(connection, worker)
        finally:
            with self._lock:
                self._connections.discard(connection)
            connection.close()

    def _admit(self, connection: socket.socket) -> int | None:
        try:
            wire.tune(connection, wire.HANDSHAKE_TIMEOUT_S)
            worker = wire.admit(
                connection, self._secret, self._layout.digest, worker_count=self._workers
            )
        except OSError as error:
            logger.warning("A connection to the parameter server was refused: %s", error)
            return None
        # A step may take any time. Keep-alive messages detect a machine that is gone.
        connection.settimeout(None)
        self._shard.greet(worker)
        return worker

    def _converse(self, connection: socket.socket, worker: int) -> None:
        said_bye = False
        gradient = PackedShard(self._layout)
        try:
            while not said_bye:
                frame = wire.receive(connection)
                if frame.worker != worker:
                    raise wire.WireError(f"Worker {worker} speaks for worker {frame.worker}.")
                expected = self._layout.size if frame.operation is Operation.PUSH else 0
                if frame.size != expected:
                    raise wire.WireError(
                        f"Worker {worker} sent {frame.size} bytes, not {expected}."
                    )
                said_bye = self._answer(connection, frame, gradient)
        except OSError as error:
            logger.info("The connection to worker %d ended: %s", worker, error)
        finally:
            self._shard.remove_worker(worker, said_bye=said_bye)

    def _answer(self, connection: socket.socket, frame: Frame, gradient: PackedShard) -> bool:
        """Execute the request of a frame, and return whether it was the last."""
        match frame.operation:
            case Operation.PUSH:
                wire.receive_into(connection, memoryview(gradient.buffer))
                _send(connection, self._shard.push(frame, gradient))
            case Operation.PULL:
                _send(connection, self._shard.pull(frame.worker))
            case Operation.STATE:
                description, values = self._shard.state()
                wire.send(connection, Frame(Operation.ANSWER), description)
                wire.send(connection, Frame(Operation.ANSWER), values)
            case Operation.LEAVE:
                self._shard.leave(frame.worker)
            case Operation.BYE:
                return True
            case _:
                raise wire.WireError(f"Worker {frame.worker} asked for {frame.operation.name}.")
        return False


def _send(connection: socket.socket, answer: ShardState) -> None:
    frame = Frame(Operation.ANSWER, flags=answer.flags, version=answer.version, loss=answer.loss)
    wire.send(connection, frame, answer.parameters)
