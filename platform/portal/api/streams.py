"""Answers that stream in constant memory."""

from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import cast

from asgiref.sync import sync_to_async
from django.db import connection
from django.http import StreamingHttpResponse


def let_go_of_the_database() -> None:
    """Give this thread's database connection back; the next query takes one again.

    A transfer lasts as long as the client wishes, and the pool has few connections: without this a
    handful of slow clients would keep everybody else out. Changes nothing inside a transaction.
    """
    if not connection.in_atomic_block:
        connection.close()


class ByteStream(StreamingHttpResponse):
    """A streamed answer made from an ordinary iterator, under ASGI too.

    Django would read an ordinary iterator to its end before it sends the first byte; here each
    piece is fetched in the request's thread when the client is ready for it.
    """

    async def __aiter__(self) -> AsyncIterator[bytes]:
        await sync_to_async(let_go_of_the_database)()
        pieces = cast("Iterator[bytes]", self.streaming_content)
        fetch = sync_to_async(partial(next, pieces, None))
        while (piece := await fetch()) is not None:
            yield piece
