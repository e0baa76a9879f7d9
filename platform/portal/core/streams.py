"""Streaming responses: in constant memory, and without a thread or a connection while idle."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar, cast

from asgiref.sync import sync_to_async
from django.db import close_old_connections, connection
from django.http import StreamingHttpResponse
from django.utils.http import content_disposition_header

Result = TypeVar("Result")


def release_connection() -> None:
    """Release this thread's database connection. The next query acquires one again.

    The client decides how long a transfer lasts, and the pool has few connections: without this a
    handful of slow clients would block all others. Changes nothing inside a transaction.
    """
    if not connection.in_atomic_block:
        connection.close()


class StreamThread:
    """One thread for the database and disk access of many streams of an event loop.

    All streams together use one connection, and only during an access.
    """

    def __init__(self, name: str) -> None:
        """`name` is the name of the thread in lists of threads."""
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)

    async def run(self, work: Callable[[], Result]) -> Result:
        """Run some work in the thread, after the work queued before."""
        return await asyncio.get_running_loop().run_in_executor(
            self._pool, _run_and_close_connections, work
        )


def _run_and_close_connections(work: Callable[[], Result]) -> Result:
    try:
        return work()
    finally:
        close_old_connections()


class EventStream(StreamingHttpResponse):
    """Server-sent events from a coroutine, which needs no thread."""

    def __init__(self, events: AsyncIterator[bytes]) -> None:
        super().__init__(events, content_type="text/event-stream")
        self.headers["Cache-Control"] = "no-store"
        self.headers["X-Accel-Buffering"] = "no"  # a proxy in front must not collect events


class ByteStream(StreamingHttpResponse):
    """A streaming response made from an ordinary iterator, under ASGI too.

    Django would read an ordinary iterator to its end before it sends the first byte. Here each
    piece is fetched in a thread of this response's own when the client is ready for it.
    """

    async def __aiter__(self) -> AsyncIterator[bytes]:
        pieces = cast("Iterator[bytes]", self.streaming_content)
        fetch = sync_to_async(partial(next, pieces, None))
        while (piece := await fetch()) is not None:
            yield piece


def private_download(
    pieces: Iterator[bytes], *, name: str, content_type: str, size_bytes: int | None
) -> ByteStream:
    """Return bytes as a download that no browser shows as a page and no cache keeps.

    `name` may hold anything: what cannot be printed becomes "_". Without `size_bytes` the size is
    unknown until the end.
    """
    answer = ByteStream(pieces, content_type=content_type)
    printable = "".join(c if c.isprintable() else "_" for c in name)
    disposition = content_disposition_header(as_attachment=True, filename=printable)
    answer.headers["Content-Disposition"] = disposition or "attachment"
    answer.headers["X-Content-Type-Options"] = "nosniff"
    answer.headers["Cache-Control"] = "private, no-store"
    if size_bytes is not None:
        answer.headers["Content-Length"] = str(size_bytes)
    return answer
