"""Forwards connections from ports of another address of this machine to ports of 127.0.0.1."""

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

_CHUNK = 65_536


@contextmanager
def forwarded(address: str, ports: Mapping[int, int]) -> Iterator[None]:
    """Forward while the block runs. `address` must be one that only this machine reaches."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    servers = [
        asyncio.run_coroutine_threadsafe(_listen(address, port, target), loop).result(10)
        for port, target in ports.items()
    ]
    try:
        yield
    finally:
        for server in servers:
            loop.call_soon_threadsafe(server.close)
        asyncio.run_coroutine_threadsafe(_cancel_all(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _listen(address: str, port: int, target: int) -> asyncio.Server:
    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            to_reader, to_writer = await asyncio.open_connection("127.0.0.1", target)
            await asyncio.gather(_copy(reader, to_writer), _copy(to_reader, writer))

    return await asyncio.start_server(accept, address, port)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await reader.read(_CHUNK):
            writer.write(chunk)
            await writer.drain()
    with suppress(OSError):
        writer.close()
