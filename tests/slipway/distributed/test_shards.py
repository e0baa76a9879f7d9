"""A server's shard and its door: who waits for whom, and who is not let in."""

import contextlib
import hashlib
import logging
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from slipway.distributed import PeerLost
from slipway.distributed.parameter_server import wire
from slipway.distributed.parameter_server.client import ParameterClient
from slipway.distributed.parameter_server.server import Server
from slipway.distributed.parameter_server.shard import Shard
from slipway.distributed.parameter_server.shards import (
    PackedShard,
    ShardLayout,
    describe,
    describe_state,
    divide,
    read_description,
)
from slipway.distributed.parameter_server.wire import Frame, Operation
from slipway.schemas.strategy import Consistency, Servers

pytestmark = pytest.mark.ranks

SECRET = b"the secret of this job"
SOON_S = 10.0
A_WHILE_S = 0.3


def _sgd(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=1.0)


LAYOUT = ShardLayout({"w": (torch.Size([3]), torch.float64)})


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    """Start servers of a shard with one weight vector, zero at first."""
    servers: list[Server] = []

    def start(
        consistency: Consistency = Consistency.ASYNCHRONOUS,
        *,
        workers: int = 2,
        staleness: int = 1,
        patience_s: float = SOON_S,
    ) -> Server:
        shard = Shard(
            LAYOUT,
            {"w": torch.zeros(3, dtype=torch.float64)},
            factory=_sgd,
            schedule=None,
            servers=Servers(1, consistency, staleness),
            workers=workers,
            patience_s=patience_s,
        )
        servers.append(Server(shard, LAYOUT, host="127.0.0.1", secret=SECRET, workers=workers))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def _join(server: Server, worker: int, **changes: Any) -> ParameterClient:
    wishes: dict[str, Any] = {"layouts": [LAYOUT], "secret": SECRET, "timeout_s": SOON_S} | changes
    return ParameterClient([server.address], worker=worker, **wishes)


def _push(client: ParameterClient, clock: int, value: float, weight: float = 1.0) -> list[float]:
    gradient = {"w": torch.full((3,), value, dtype=torch.float64)}
    parameters, _ = client.push(gradient, clock=clock, weight=weight, loss=value, stop=False)
    return list(parameters["w"].tolist())


def _in_background(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_asynchronous_gradients_are_applied_as_they_come(serve: Callable[..., Server]) -> None:
    server = serve()
    one, two = _join(server, 0), _join(server, 1)
    assert _push(one, 1, 1.0) == [-1.0] * 3
    assert _push(two, 1, 2.0) == [-3.0] * 3
    assert one.pull()["w"].tolist() == [-3.0] * 3


def test_a_synchronous_round_is_the_weighted_mean_of_all_workers(
    serve: Callable[..., Server],
) -> None:
    server = serve(Consistency.SYNCHRONOUS)
    one, two = _join(server, 0), _join(server, 1)
    one.pull()
    two.pull()
    seen: list[list[float]] = []
    first = _in_background(lambda: seen.append(_push(one, 1, 1.0, weight=3.0)))
    first.join(A_WHILE_S)
    assert first.is_alive(), "a round waits for every worker"
    seen.append(_push(two, 1, 5.0, weight=1.0))
    first.join(SOON_S)
    assert seen == [[-2.0] * 3, [-2.0] * 3]


def test_a_stale_synchronous_worker_waits_for_the_slowest_beyond_its_bound(
    serve: Callable[..., Server],
) -> None:
    server = serve(Consistency.STALE_SYNCHRONOUS, staleness=1)
    fast, slow = _join(server, 0), _join(server, 1)
    _push(fast, 1, 1.0)  # one step ahead: allowed
    second = _in_background(lambda: _push(fast, 2, 1.0))
    second.join(A_WHILE_S)
    assert second.is_alive()
    _push(slow, 1, 1.0)
    second.join(SOON_S)
    assert not second.is_alive()


def _comes_to_lead(client: ParameterClient) -> bool:
    until = time.monotonic() + SOON_S
    while time.monotonic() < until:
        client.pull()
        if client.is_leader:
            return True
    return False


@pytest.mark.parametrize("farewell", ["close", "leave"])
def test_nobody_waits_for_a_worker_that_has_left(
    serve: Callable[..., Server], farewell: str
) -> None:
    server = serve(Consistency.SYNCHRONOUS)
    one, two = _join(server, 0), _join(server, 1)
    one.pull()
    getattr(two, farewell)()
    assert _push(one, 1, 1.0) == [-1.0] * 3


def test_a_silent_worker_is_given_up_and_may_come_back(
    serve: Callable[..., Server], caplog: pytest.LogCaptureFixture
) -> None:
    server = serve(Consistency.SYNCHRONOUS, patience_s=A_WHILE_S)
    one, two = _join(server, 0), _join(server, 1)
    one.pull()
    two.pull()
    with caplog.at_level(logging.WARNING):
        assert _push(one, 1, 1.0) == [-1.0] * 3
    assert "Worker 1 has been silent" in caplog.text
    # Its gradient was made of weights of an earlier round: it gets the new ones instead.
    assert _push(two, 1, 100.0) == [-1.0] * 3


def test_the_living_worker_with_the_lowest_number_leads(serve: Callable[..., Server]) -> None:
    server = serve()
    one, two = _join(server, 0), _join(server, 1)
    one.pull()
    two.pull()
    assert one.is_leader
    assert not two.is_leader
    one.leave()
    two.pull()
    assert not two.is_leader, "one that only pauses still leads"
    one.close()
    assert _comes_to_lead(two)


def test_a_wish_to_stop_reaches_every_worker(serve: Callable[..., Server]) -> None:
    server = serve()
    one, two = _join(server, 0), _join(server, 1)
    zero = {"w": torch.zeros(3, dtype=torch.float64)}
    one.push(zero, clock=1, weight=1.0, loss=0.0, stop=True)
    _push(two, 1, 1.0)
    assert one.stop_requested
    assert two.stop_requested


@pytest.mark.parametrize(
    ("changes", "worker"),
    [
        ({"secret": b"guessed"}, 0),
        ({"secret": b""}, 0),
        ({"layouts": [ShardLayout({"v": (torch.Size([3]), torch.float64)})]}, 0),
        ({}, 7),
    ],
    ids=["wrong secret", "no secret", "another model", "no such worker"],
)
def test_a_stranger_is_not_let_in(
    serve: Callable[..., Server], changes: dict[str, Any], worker: int
) -> None:
    server = serve()
    with pytest.raises(PeerLost, match="lost the parameter server"):
        _join(server, worker, **changes)
    assert _push(_join(server, 0), 1, 1.0) == [-1.0] * 3, "others are still served"


def test_a_server_that_does_not_know_the_secret_is_not_trusted() -> None:
    with socket.create_server(("127.0.0.1", 0)) as impostor:

        def pretend() -> None:
            connection, _ = impostor.accept()
            with connection:
                connection.sendall(bytes(32))
                connection.recv(4096)
                connection.sendall(bytes(32))

        thread = _in_background(pretend)
        with pytest.raises(PeerLost, match="does not know the secret"):
            ParameterClient(
                [impostor.getsockname()], [LAYOUT], worker=0, secret=SECRET, timeout_s=SOON_S
            )
        thread.join(SOON_S)


def _admitted(server: Server) -> socket.socket:
    connection = socket.create_connection(server.address, SOON_S)
    wire.introduce(connection, SECRET, LAYOUT.digest, worker=0)
    return connection


@pytest.mark.parametrize(
    "message",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + bytes(64),
        struct.pack("!4sBBHIQQddQ", b"SWPS", 1, 2, 0, 0, 1, 0, 1.0, 0.0, 2**62),
        struct.pack("!4sBBHIQQddQ", b"SWPS", 1, 1, 0, 0, 1, 0, 1.0, 0.0, 8),
        struct.pack("!4sBBHIQQddQ", b"SWPS", 1, 2, 0, 1, 1, 0, 1.0, 0.0, 24),
        struct.pack("!4sBBHIQQddQ", b"SWPS", 9, 2, 0, 0, 1, 0, 1.0, 0.0, 24),
        struct.pack("!4sBBHIQQddQ", b"SWPS", 1, 99, 0, 0, 1, 0, 1.0, 0.0, 0),
        struct.pack("!4sBBHIQQddQ", b"SWPS", 1, 6, 0, 0, 1, 0, 1.0, 0.0, 0),
    ],
    ids=["http", "huge", "bytes nobody asked for", "for another", "version", "verb", "answer"],
)
def test_a_frame_out_of_order_ends_its_connection_and_no_other(
    serve: Callable[..., Server], message: bytes
) -> None:
    server = serve()
    other = _join(server, 1)
    with _admitted(server) as connection:
        connection.sendall(message)
        with contextlib.suppress(ConnectionResetError):  # what it still had to read was dropped
            assert connection.recv(1) == b""
    assert _push(other, 1, 1.0) == [-1.0] * 3


def test_a_caller_who_says_nothing_is_not_waited_for(
    serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "HANDSHAKE_TIMEOUT_S", A_WHILE_S)
    server = serve()
    with socket.create_connection(server.address, SOON_S) as connection:
        assert len(connection.recv(64)) == 32
        assert connection.recv(1) == b""


_types = st.sampled_from([torch.float64, torch.float32, torch.bfloat16, torch.int64, torch.uint8])
_shapes = st.lists(st.integers(0, 4), max_size=3).map(torch.Size)
_described = st.dictionaries(
    st.text("abc.", min_size=1, max_size=6), st.tuples(_shapes, _types), min_size=1, max_size=8
)


@given(described=_described, servers=st.integers(1, 4))
def test_every_parameter_is_on_one_server_and_arrives_as_it_was_sent(
    described: dict[str, tuple[torch.Size, torch.dtype]], servers: int
) -> None:
    layouts = divide(described, servers)
    names = [name for layout in layouts for name in layout.described]
    assert sorted(names) == sorted(described)
    for layout in layouts:
        values = {
            name: (torch.arange(shape.numel()) % 100).to(dtype).view(shape)
            for name, (shape, dtype) in layout.described.items()
        }
        sent, received = PackedShard(layout), PackedShard(layout)
        sent.fill(values)
        received.buffer[:] = sent.buffer
        for name, value in values.items():
            assert torch.equal(received.tensors[name], value)


@pytest.mark.parametrize(
    "text",
    [
        b"[]",
        b"{}",
        b'{"plain": {}, "tensors": [["a", [-1], "torch.float32"]]}',
        b'{"plain": {}, "tensors": [["a", [1], "os.system"]]}',
        b'{"plain": {}, "tensors": [["a", "x", "torch.float32"]]}',
        b"\xff",
    ],
)
def test_a_description_that_is_none_is_refused(text: bytes) -> None:
    with pytest.raises((ValueError, KeyError)):
        read_description(text)


def test_optimizer_state_describes_itself() -> None:
    tensors = {"w.exp": torch.ones(2, dtype=torch.float64), "w.step": torch.tensor(3.0)}
    layout, plain = read_description(describe_state(tensors, {"options": {"w": {"lr": 1.0}}}))
    assert layout.described == describe(tensors.items())
    assert plain == {"options": {"w": {"lr": 1.0}}}
    assert (
        layout.digest
        == hashlib.sha256(
            b'[["w.exp", [2], "torch.float64"], ["w.step", [], "torch.float32"]]'
        ).digest()
    )


def test_an_answer_of_the_wrong_length_is_not_taken(serve: Callable[..., Server]) -> None:
    server = serve()
    client = _join(server, 0)
    client._parameters = [PackedShard(ShardLayout({"w": (torch.Size([2]), torch.float64)}))]
    with pytest.raises(PeerLost, match="answered something else"):
        client.pull()
    frame = Frame(Operation.PULL)
    assert frame.size == 0
