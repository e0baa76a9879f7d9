"""Throughput, latency and streams of the relay, compared with a connection to the same socket.

    .venv/bin/python bench/relay.py [--mib 256] [--rounds 5] [--streams 1000] [--json]

Relay, agent and client are processes of their own on this machine, the workload is in the agent's.
"ours" goes through the door of the relay, the peer connects to the workload's socket directly. Both
sides take turns, and the figures are medians of the rounds. Rates are MB/s (10^6 bytes), latency is
that of one byte there and back.
"""

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "platform"), str(ROOT)]

from bench.needs import DEVELOPMENT, require  # noqa: E402  (the path comes first)

require([*DEVELOPMENT, "websockets", "uvloop"])

from slipway.schemas.relay import RelayTarget  # noqa: E402
from tests.processes import Program, clean_environment, wait_for  # noqa: E402
from tests.workers.relay.relays import Relay, running_relay  # noqa: E402
from workers.node_agent.portal import Portal  # noqa: E402
from workers.node_agent.relay import NodeRelay  # noqa: E402

MIB = 1024**2
PIECE = 256 * 1024
TOKEN = "bench"
PINGS = 300
TARGET = RelayTarget(workload_id="wkl_bench", epoch=1)
Cases = dict[str, tuple[float, float, str]]


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A workload: `get N` sends N bytes, `put N` reads N bytes, anything else comes back."""
    try:
        while line := await reader.readline():
            verb, _, count = line.strip().partition(b" ")
            if verb == b"get":
                for _ in range(int(count) // PIECE):
                    writer.write(bytes(PIECE))
                    await writer.drain()
            elif verb == b"put":
                await skip(reader, int(count))
                writer.write(b"done\n")
            else:
                writer.write(line)
            await writer.drain()
    except ConnectionError:
        pass
    writer.close()


async def skip(reader: asyncio.StreamReader, count: int) -> None:
    """Read so many bytes."""
    while count > 0:
        piece = await reader.read(min(count, PIECE))
        if not piece:
            raise ConnectionResetError("the connection ended early")
        count -= len(piece)


async def serve(portal_url: str, path: Path) -> None:
    """The agent's end and the workload, for ever."""
    portal = Portal(portal_url)
    portal.use_token(TOKEN)
    await asyncio.start_unix_server(answer, path, backlog=4096, limit=2 * PIECE)
    served = {TARGET.name: (TARGET, path)}
    await NodeRelay(portal, portal_url, lambda: served).run()


async def download(path: Path, size: int) -> float:
    """Return the MB/s at which bytes come from the workload."""
    reader, writer = await asyncio.open_unix_connection(path, limit=2 * PIECE)
    began = time.perf_counter()
    writer.write(b"get %d\n" % size)
    await skip(reader, size)
    took = time.perf_counter() - began
    writer.close()
    return size / took / 1e6


async def upload(path: Path, size: int) -> float:
    """Return the MB/s at which bytes reach the workload."""
    reader, writer = await asyncio.open_unix_connection(path, limit=2 * PIECE)
    began = time.perf_counter()
    writer.write(b"put %d\n" % size)
    piece = bytes(PIECE)
    for _ in range(size // PIECE):
        writer.write(piece)
        await writer.drain()
    await reader.readline()
    took = time.perf_counter() - began
    writer.close()
    return size / took / 1e6


async def latency(path: Path, _: int) -> float:
    """Return the p50 in ms of a small message there and back."""
    reader, writer = await asyncio.open_unix_connection(path)
    times = []
    for _ in range(PINGS):
        began = time.perf_counter()
        writer.write(b"x\n")
        await reader.readline()
        times.append((time.perf_counter() - began) * 1000)
    writer.close()
    return statistics.median(times)


async def many(path: Path, count: int) -> float:
    """Return the seconds in which so many connections are opened and each answers."""
    began = time.perf_counter()
    pairs = [await asyncio.open_unix_connection(path) for _ in range(count)]
    for _, writer in pairs:
        writer.write(b"x\n")
    for reader, _ in pairs:
        await reader.readline()
    took = time.perf_counter() - began
    for _, writer in pairs:
        writer.close()
    return took


async def measure(relay: Relay, direct: Path, arguments: argparse.Namespace) -> Cases:
    """Return the figures of both sides."""
    door = relay.door(TARGET)
    size = arguments.mib * MIB
    plan: dict[str, tuple[Callable[[Path, int], Awaitable[float]], int, str]] = {
        "download": (download, size, "MB/s"),
        "upload": (upload, size, "MB/s"),
        "round_trip_p50": (latency, 0, "ms"),
        f"open_{arguments.streams}_streams": (many, arguments.streams, "s"),
    }
    cases: Cases = {}
    for name, (work, amount, unit) in plan.items():
        pairs = [
            (await work(door, amount), await work(direct, amount)) for _ in range(arguments.rounds)
        ]
        ours, peer = (statistics.median(side) for side in zip(*pairs, strict=True))
        cases[name] = (ours, peer, unit)
    return cases


def run(arguments: argparse.Namespace) -> Cases:
    """Start relay and agent, and measure."""
    with running_relay() as relay:
        relay.portal.nodes[TOKEN] = [TARGET]
        direct = relay.folder / "workload"
        agent = Program(
            [sys.executable, __file__, "--serve", relay.portal.url, str(direct)],
            env=clean_environment(),
            output=relay.folder / "agent.log",
        )
        try:
            wait_for(relay.door(TARGET).exists, "the door of the workload", within_s=60)
            return asyncio.run(measure(relay, direct, arguments))
        finally:
            agent.end()


def main() -> None:
    """Print a table, and with --json one line of JSON at the end."""
    parser = argparse.ArgumentParser(description="Benchmark of the relay.")
    parser.add_argument("--mib", type=int, default=256, help="MiB of a transfer")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each case")
    parser.add_argument("--streams", type=int, default=1000, help="connections at once")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--serve", nargs=2, metavar=("PORTAL", "PATH"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        asyncio.run(serve(arguments.serve[0], Path(arguments.serve[1])))
        return
    cases = run(arguments)
    for name, (ours, peer, unit) in cases.items():
        print(f"{name:24} ours {ours:10.3f} {unit:5} peer {peer:10.3f} {unit}")
    if arguments.json:
        figures = {
            name: {"ours": ours, "peer": peer, "ratio": ours / peer, "unit": unit}
            for name, (ours, peer, unit) in cases.items()
        }
        print(json.dumps({"bench": "relay", "cases": figures}))


if __name__ == "__main__":
    main()
