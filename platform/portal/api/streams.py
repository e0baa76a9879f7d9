"""Answers that stream in constant memory."""

from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import cast

from asgiref.sync import sync_to_async
from django.http import StreamingHttpResponse


class ByteStream(StreamingHttpResponse):
    """A streamed answer made from an ordinary iterator, under ASGI too.

    Django would read an ordinary iterator to its end before it sends the first byte; here each
    piece is fetched in the request's thread when the client is ready for it.
    """

    async def __aiter__(self) -> AsyncIterator[bytes]:
        pieces = cast("Iterator[bytes]", self.streaming_content)
        fetch = sync_to_async(partial(next, pieces, None))
        while (piece := await fetch()) is not None:
            yield piece
