"""A worker's connections to all servers."""

import socket
from collections.abc import Mapping, Sequence

import torch

from slipway.distributed.errors import PeerLost
from slipway.distributed.optimizers import Plain
from slipway.distributed.parameter_server import wire
from slipway.distributed.parameter_server.shards import PackedShard, ShardLayout, read_description
from slipway.distributed.parameter_server.wire import Flag, Frame, Operation


class ParameterClient:
    """Sends gradients to every server and takes the parameters that come back.

    The methods raise PeerLost when a server dies or does not answer for `timeout_s`.
    """

    def __init__(
        self,
        addresses: Sequence[tuple[str, int]],
        layouts: Sequence[ShardLayout],
        *,
        worker: int,
        secret: bytes,
        timeout_s: float,
    ) -> None:
        self._worker = worker
        self._addresses = list(addresses)
        self._gradients = [PackedShard(layout) for layout in layouts]
        self._parameters = [PackedShard(layout) for layout in layouts]
        self._versions = [0] * len(layouts)
        self._sockets: list[socket.socket] = []
        self.flags = 0
        for server, (address, layout) in enumerate(zip(addresses, layouts, strict=True)):
            try:
                connection = socket.create_connection(address, wire.HANDSHAKE_TIMEOUT_S)
                self._sockets.append(connection)
                wire.tune(connection, wire.HANDSHAKE_TIMEOUT_S)
                wire.introduce(connection, secret, layout.digest, worker=worker)
            except OSError as error:
                raise self._lost(server, error) from error
            connection.settimeout(timeout_s)

    @property
    def is_leader(self) -> bool:
        """True if this worker writes checkpoints, as the live worker with the lowest number."""
        return bool(self.flags & Flag.LEADER)

    @property
    def stop_requested(self) -> bool:
        """True if any worker was asked to stop."""
        return bool(self.flags & Flag.STOP)

    def pull(self) -> Mapping[str, torch.Tensor]:
        """Return the current parameters. The next call overwrites them."""
        self._broadcast(Frame(Operation.PULL, worker=self._worker))
        return self._receive_parameters()[0]

    def push(
        self,
        gradients: Mapping[str, torch.Tensor | None],
        *,
        clock: int,
        weight: float,
        loss: float,
        stop: bool,
    ) -> tuple[Mapping[str, torch.Tensor], float]:
        """Send gradients. Return parameters and loss when the servers let this worker continue."""
        for packed in self._gradients:
            packed.fill(gradients)
        for server, packed in enumerate(self._gradients):
            frame = Frame(
                Operation.PUSH,
                flags=Flag.STOP if stop else 0,
                worker=self._worker,
                clock=clock,
                version=self._versions[server],
                weight=weight,
                loss=loss,
            )
            self._send(server, frame, memoryview(packed.buffer))
        return self._receive_parameters()

    def state(self) -> tuple[dict[str, torch.Tensor], list[Plain]]:
        """Return the optimizer state of all servers: tensors by name, and each one's numbers."""
        self._broadcast(Frame(Operation.STATE, worker=self._worker))
        tensors: dict[str, torch.Tensor] = {}
        plain: list[Plain] = []
        for server in range(len(self._sockets)):
            try:
                described = self._receive(server, None, wire.MAX_DESCRIPTION_BYTES)
                layout, numbers = read_description(described)
                packed = PackedShard(layout)
                self._receive(server, memoryview(packed.buffer), layout.size)
            except (OSError, ValueError) as error:
                raise self._lost(server, error) from error
            tensors |= packed.tensors
            plain.append(dict(numbers))
        return tensors, plain

    def leave(self) -> None:
        """Ask not to be waited for until the next push."""
        self._broadcast(Frame(Operation.LEAVE, worker=self._worker))

    def close(self) -> None:
        """Disconnect from the servers that are still there."""
        for connection in self._sockets:
            try:
                wire.send(connection, Frame(Operation.BYE, worker=self._worker))
            except OSError:
                continue
            finally:
                connection.close()
        self._sockets = []

    def _broadcast(self, frame: Frame) -> None:
        for server in range(len(self._sockets)):
            self._send(server, frame, b"")

    def _send(self, server: int, frame: Frame, payload: bytes | memoryview) -> None:
        try:
            wire.send(self._sockets[server], frame, payload)
        except OSError as error:
            raise self._lost(server, error) from error

    def _receive_parameters(self) -> tuple[Mapping[str, torch.Tensor], float]:
        parameters: dict[str, torch.Tensor] = {}
        loss = 0.0
        for server, packed in enumerate(self._parameters):
            try:
                frame = wire.receive(self._sockets[server])
                if frame.operation is not Operation.ANSWER or frame.size != len(packed.buffer):
                    raise wire.WireError("The parameter server answered something else.")
                wire.receive_into(self._sockets[server], memoryview(packed.buffer))
            except OSError as error:
                raise self._lost(server, error) from error
            parameters |= packed.tensors
            self._versions[server] = frame.version
            if server == 0:
                # All servers receive the same pushes, so the first one's flags and loss suffice.
                self.flags, loss = frame.flags, frame.loss
        return parameters, loss

    def _receive(self, server: int, into: memoryview | None, limit: int) -> bytes:
        connection = self._sockets[server]
        frame = wire.receive(connection)
        if frame.operation is not Operation.ANSWER or frame.size > limit:
            raise wire.WireError("The parameter server answered something else.")
        if into is None:
            return wire.receive_exactly(connection, frame.size)
        if frame.size != len(into):
            raise wire.WireError("The optimizer state is not as long as it was said to be.")
        wire.receive_into(connection, into)
        return b""

    def _lost(self, server: int, error: Exception) -> PeerLost:
        host, port = self._addresses[server]
        return PeerLost(
            f"Worker {self._worker} lost the parameter server at {host}:{port}: {error}",
            next_step="Look for the server's own error in its log; the job can be started again "
            "from the last checkpoint.",
        )
