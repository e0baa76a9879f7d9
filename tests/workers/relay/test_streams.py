"""The relay with real sockets: doors, streams, flow control, and what comes from a broken peer."""

import asyncio
import hashlib
import os
import re
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx
import pytest
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidStatus

from slipway.schemas.relay import RelayTarget
from tests.workers.relay.relays import (
    Node,
    Relay,
    appears,
    call,
    dial,
    echo,
    register,
    running_relay,
)
from workers.relay.frames import (
    CREDIT,
    FIRST_WINDOW,
    MAX_DATA,
    MAX_WINDOW,
    Frame,
    FrameKind,
    pack,
    unpack,
)

_PATIENCE_S = 60


@pytest.fixture(scope="module")
def relay() -> Iterator[Relay]:
    """One relay for all tests that do not kill it."""
    with running_relay() as running:
        yield running


@asynccontextmanager
async def node_of(relay: Relay) -> AsyncIterator[Node]:
    """Yield a node that nobody else uses."""
    node = Node(relay, secrets.token_hex(6))
    try:
        async with asyncio.timeout(_PATIENCE_S):
            yield node
    finally:
        await node.close()


async def is_cut_off(reader: asyncio.StreamReader) -> bool:
    """Wait for the end of a connection that brings nothing."""
    try:
        return await reader.read() == b""
    except ConnectionError:
        return True


async def is_closed(socket: ClientConnection) -> bool:
    """Wait until the relay closes the connection of an agent."""
    try:
        while True:
            await socket.recv()
    except ConnectionClosed:
        return True


def new_workload() -> str:
    """Return the id of a workload."""
    return f"wkl_{secrets.token_hex(8)}"


def test_bytes_of_any_length_come_back_through_a_door(relay: Relay) -> None:
    async def run() -> None:
        async with node_of(relay) as node:
            door = relay.door(await node.serve(new_workload(), echo))
            for size in (0, 1, FIRST_WINDOW, FIRST_WINDOW + 1, 3 * MAX_WINDOW + 7):
                data = os.urandom(size)
                assert await call(door, data) == data, size

    asyncio.run(run())


def test_a_door_is_for_its_own_user_alone(relay: Relay) -> None:
    async def run() -> None:
        async with node_of(relay) as node:
            door = relay.door(await node.serve(new_workload(), echo))
            assert door.stat().st_mode & 0o777 == 0o600
            assert relay.doors.stat().st_mode & 0o777 == 0o700

    asyncio.run(run())


def test_each_direction_ends_on_its_own(relay: Relay) -> None:
    async def answer_late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received = await reader.read()
        writer.write(hashlib.sha256(received).digest())
        writer.close()

    async def speak_first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"first")
        writer.write_eof()
        heard.set_result(await reader.read())
        writer.close()

    heard: asyncio.Future[bytes]

    async def run() -> None:
        nonlocal heard
        heard = asyncio.get_running_loop().create_future()
        async with node_of(relay) as node:
            data = os.urandom(300_000)
            late = relay.door(await node.serve(new_workload(), answer_late))
            assert await call(late, data) == hashlib.sha256(data).digest()
            first = relay.door(await node.serve(new_workload(), speak_first))
            reader, writer = await asyncio.open_unix_connection(first)
            assert await reader.read() == b"first"
            writer.write(b"second")
            writer.write_eof()
            assert await heard == b"second"
            writer.close()

    asyncio.run(run())


def test_a_thousand_streams_share_one_connection(relay: Relay) -> None:
    async def run() -> None:
        async with node_of(relay) as node:
            door = relay.door(await node.serve(new_workload(), echo))
            pairs = [await asyncio.open_unix_connection(door) for _ in range(1000)]
            for number, (_, writer) in enumerate(pairs):
                writer.write(f"stream {number}\n".encode())
            for number, (reader, _) in enumerate(pairs):
                assert await reader.readline() == f"stream {number}\n".encode()
            for _, writer in pairs:
                writer.close()

    asyncio.run(run())


def test_more_streams_than_allowed_are_refused_and_the_others_go_on(relay: Relay) -> None:
    async def run() -> None:
        async with node_of(relay) as node:
            door = relay.door(await node.serve(new_workload(), echo))
            pairs = [await asyncio.open_unix_connection(door) for _ in range(1024)]
            for _, writer in pairs:
                writer.write(b"x\n")
            for reader, _ in pairs:
                assert await reader.readline() == b"x\n"
            reader, writer = await asyncio.open_unix_connection(door)
            writer.write(b"one too many\n")
            assert await is_cut_off(reader)
            pairs[0][1].write(b"still here\n")
            assert await pairs[0][0].readline() == b"still here\n"
            for _, writer in pairs:
                writer.close()

    asyncio.run(run())


def test_slow_readers_delay_nobody_and_memory_stays_bounded(relay: Relay) -> None:
    async def flood(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sent = 0
        try:
            while sent < 64 << 20:
                writer.write(bytes(1 << 16))
                await writer.drain()
                sent += 1 << 16
                flooded[0] = max(flooded[0], sent)
                has_begun.set()
        except OSError:
            pass
        writer.close()

    flooded = [0]
    has_begun = asyncio.Event()

    async def run() -> None:
        async with node_of(relay) as node:
            quick = relay.door(await node.serve(new_workload(), echo))
            slow = relay.door(await node.serve(new_workload(), flood))
            before = _memory_kib(relay)
            # They read nothing at all.
            idle = [await asyncio.open_unix_connection(slow, limit=1024) for _ in range(50)]
            await has_begun.wait()
            data = os.urandom(1 << 20)
            for _ in range(5):
                assert await call(quick, data) == data
            # A window each, and buffers of sockets: not the 3 GiB that the workloads would send.
            assert _memory_kib(relay) - before < 100_000
            assert flooded[0] < 4 << 20
            for _, writer in idle:
                writer.transport.abort()

    asyncio.run(run())


def _memory_kib(relay: Relay) -> int:
    status = Path(f"/proc/{relay.process.pid}/status").read_text()
    match = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert match is not None
    return int(match[1])


def test_a_killed_relay_comes_back_and_agents_connect_again() -> None:
    async def run(relay: Relay) -> None:
        async with node_of(relay) as node:
            target = await node.serve(new_workload(), echo)
            door = relay.door(target)
            reader, writer = await asyncio.open_unix_connection(door)
            writer.write(b"before\n")
            assert await reader.readline() == b"before\n"
            await asyncio.to_thread(relay.restart)
            assert await reader.read() == b""
            writer.close()
            await appears(door)
            assert await call(door, b"after") == b"after"

    with running_relay() as relay:
        asyncio.run(run(relay))


def test_streams_end_and_the_door_goes_when_the_agent_is_gone(relay: Relay) -> None:
    async def run() -> None:
        async with node_of(relay) as node:
            door = relay.door(await node.serve(new_workload(), echo))
            reader, writer = await asyncio.open_unix_connection(door)
            writer.write(b"x\n")
            assert await reader.readline() == b"x\n"
            await node.close()
            assert await is_cut_off(reader)
            writer.close()
            await appears(door, is_there=False)
            assert "The connection to the node was lost." in relay.process.text()

    asyncio.run(run())


def test_a_workload_that_ended_has_no_door(relay: Relay) -> None:
    async def run() -> None:
        async with node_of(relay) as node:
            target = await node.serve(new_workload(), echo)
            await call(relay.door(target), b"x")
            del node.sockets[target.name]
            await appears(relay.door(target), is_there=False)

    asyncio.run(run())


def test_a_workload_that_does_not_accept_ends_the_stream(relay: Relay) -> None:
    async def run() -> None:
        async with node_of(relay) as node:
            target = await node.serve(new_workload(), echo)
            node.sockets[target.name][1].unlink()
            reader, writer = await asyncio.open_unix_connection(relay.door(target))
            assert await is_cut_off(reader)
            writer.close()

    asyncio.run(run())


# Who may connect, and what a node may serve


def test_only_a_node_connects(relay: Relay) -> None:
    async def run() -> None:
        with pytest.raises(InvalidStatus) as refused:
            await dial(relay, "unknown")
        assert refused.value.response.status_code == 401

    asyncio.run(run())
    base = f"http://127.0.0.1:{relay.port}"
    assert httpx.get(f"{base}/healthz").text == "ok\n"
    assert httpx.get(f"{base}/relay").status_code == 401
    assert httpx.get(f"{base}/doors").status_code == 404
    relay.portal.nodes["browser"] = []
    page = {"Authorization": "Bearer browser", "Origin": "http://evil.example"}
    assert httpx.get(f"{base}/relay", headers=page).status_code == 401


def test_a_portal_that_is_away_refuses_nobody_for_good(relay: Relay) -> None:
    async def run() -> None:
        relay.portal.nodes["patient"] = []
        relay.portal.is_away = True
        try:
            with pytest.raises(InvalidStatus) as refused:
                await dial(relay, "patient")
            assert refused.value.response.status_code == 503
        finally:
            relay.portal.is_away = False
        await (await dial(relay, "patient")).close()

    asyncio.run(run())


def test_a_node_serves_only_what_runs_on_it(relay: Relay) -> None:
    async def run() -> None:
        async with node_of(relay) as owner, node_of(relay) as other:
            theirs = await owner.serve(new_workload(), echo)
            relay.portal.nodes[other.token] = []
            socket = await dial(relay, other.token)
            for target in (theirs, RelayTarget(workload_id=new_workload(), epoch=1)):
                answer = await register(socket, target)
                assert answer.reason == "No such workload runs on this node."
                assert answer.is_final
            later = RelayTarget(workload_id=theirs.workload_id, epoch=theirs.epoch + 1)
            assert (await register(socket, later)).reason
            # The foreign door still leads to its owner.
            assert await call(relay.door(theirs), b"mine") == b"mine"
            own = other.grant(new_workload())
            assert (await register(socket, own)).reason == ""
            assert relay.door(own).exists()
            await socket.close()

    asyncio.run(run())


def test_a_door_leads_to_nothing_but_its_target(relay: Relay) -> None:
    """The relay names the target of a stream; an agent reaches only what it serves itself."""

    async def run() -> None:
        async with node_of(relay) as node:
            target = await node.serve(new_workload(), echo)
            path = node.sockets[target.name][1]
            elsewhere = path.with_suffix(".other")
            server = await asyncio.start_unix_server(echo, elsewhere)
            path.unlink()
            path.symlink_to(elsewhere)
            reader, writer = await asyncio.open_unix_connection(relay.door(target))
            writer.write(b"x\n")
            assert await is_cut_off(reader)
            writer.close()
            server.close()

    asyncio.run(run())


# Broken peers

_GARBAGE: dict[str, str | bytes] = {
    "text": "hello",
    "too short": b"\x01",
    "unknown kind": pack(FrameKind.OPEN, 1).replace(b"\x01", b"\x63", 1),
    "an agent opens a stream": pack(FrameKind.OPEN, 1, b"name"),
    "data of a stream that was never opened": pack(FrameKind.DATA, 7, b"x"),
    "a target that is no JSON": pack(FrameKind.REGISTER, 0, b"{"),
    "a target with a path": pack(
        FrameKind.REGISTER, 0, b'{"workload_id": "a", "epoch": 1, "path": "/etc"}'
    ),
    "a huge target": pack(FrameKind.REGISTER, 0, b" " * 5000),
    "bytes that are no text": pack(FrameKind.UNREGISTER, 0, b"\xff\xfe"),
    "an answer": pack(FrameKind.ANSWER, 0, b"{}"),
    "a huge frame": pack(FrameKind.DATA, 1, bytes(2 * MAX_DATA)),
}


@pytest.mark.parametrize("name", _GARBAGE)
def test_garbage_ends_the_connection_and_no_other(relay: Relay, name: str) -> None:
    async def run() -> None:
        async with node_of(relay) as node:
            door = relay.door(await node.serve(new_workload(), echo))
            relay.portal.nodes["garbage"] = []
            socket = await dial(relay, "garbage")
            await socket.send(_GARBAGE[name])
            assert await is_closed(socket)
            assert await call(door, b"still here") == b"still here"

    asyncio.run(run())


async def _opened(socket: ClientConnection) -> Frame:
    while True:
        frame = unpack(await socket.recv())
        if frame.kind is FrameKind.OPEN:
            return frame


@pytest.mark.parametrize("breach", ["more data than granted", "more credit than a window"])
def test_a_peer_that_breaks_flow_control_is_cut_off(relay: Relay, breach: str) -> None:
    async def run() -> None:
        async with node_of(relay) as node:
            target = node.grant(new_workload())
            socket = await dial(relay, node.token)
            assert not (await register(socket, target)).reason
            reader, writer = await asyncio.open_unix_connection(relay.door(target), limit=1024)
            stream = (await _opened(socket)).stream
            if breach == "more credit than a window":
                await socket.send(pack(FrameKind.CREDIT, stream, CREDIT.pack(MAX_WINDOW)))
            with suppress(ConnectionClosed):
                for _ in range(40):
                    await socket.send(pack(FrameKind.DATA, stream, bytes(MAX_DATA)))
            assert await is_closed(socket)
            writer.transport.abort()
            del reader

    asyncio.run(run())
