"""Copies bytes between a stream of the relay and a socket, both ways, until both have ended."""

import asyncio
import socket
from contextlib import suppress
from pathlib import Path
from typing import Final

from workers.relay.frames import MAX_DATA
from workers.relay.multiplexer import Stream, StreamReset

# Bytes that the side of the socket may hold besides the windows of the stream.
WRITE_LIMIT: Final = 64 << 10
READ_LIMIT: Final = MAX_DATA
_CONNECT_WITHIN_S: Final = 10.0
_CONNECT_AGAIN_S: Final = 0.01
_CLOSE_WITHIN_S: Final = 10.0


async def connect_unix(path: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to a Unix socket. Raises OSError.

    While the queue of a listener is full the kernel answers EAGAIN, which asyncio takes for a
    connection that will come.
    """
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.setblocking(False)
    deadline = asyncio.get_running_loop().time() + _CONNECT_WITHIN_S
    try:
        while True:
            try:
                client.connect(str(path))
            except BlockingIOError:
                if asyncio.get_running_loop().time() > deadline:
                    raise
                await asyncio.sleep(_CONNECT_AGAIN_S)
            else:
                return await asyncio.open_unix_connection(sock=client, limit=READ_LIMIT)
    except BaseException:
        client.close()
        raise


async def carry(stream: Stream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
    """Copy until both directions have ended. Return the reason if they were cut off."""
    writer.transport.set_write_buffer_limits(high=WRITE_LIMIT)
    inward = asyncio.create_task(_to_socket(stream, writer))
    outward = asyncio.create_task(_to_stream(stream, reader))
    try:
        await asyncio.gather(inward, outward)
    except StreamReset as error:
        writer.transport.abort()
        return str(error)
    except OSError as error:
        stream.reset(f"The connection failed: {error.strerror or type(error).__name__}.")
        return stream.reason
    finally:
        for task in (inward, outward):
            task.cancel()
        if not (inward.done() and outward.done()):
            stream.reset("The connection was closed.")
            writer.transport.abort()
        await close(writer)
    return ""


async def close(writer: asyncio.StreamWriter) -> None:
    """Close a connection once everything written is sent, or does not go out in time."""
    writer.close()
    try:
        # Nobody else takes its exception, which asyncio would log as an error.
        await asyncio.wait_for(writer.wait_closed(), _CLOSE_WITHIN_S)
    except OSError:
        writer.transport.abort()


async def _to_socket(stream: Stream, writer: asyncio.StreamWriter) -> None:
    while data := await stream.read():
        writer.write(data)
        await writer.drain()
        stream.consume(len(data))
    with suppress(OSError):
        writer.write_eof()


async def _to_stream(stream: Stream, reader: asyncio.StreamReader) -> None:
    while data := await reader.read(MAX_DATA):
        await stream.write(data)
    stream.end()
