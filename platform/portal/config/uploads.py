"""Request handler that passes an upload to its view while it is still arriving.

Django writes every body to a temporary file before it processes the request. An upload of many
gigabytes would then be written twice, and a stranger could fill the disk before any policy is
checked. Here the view pulls the bytes from the client's connection, after its gate has passed,
and the client is slowed down to the pace of the store.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from portal.api.uploads import is_upload
from portal.config.threaded_handler import RequestHandler

Event = dict[str, Any]
_SILENCE_ALLOWED_S = 60
# The client decides how long an upload holds its thread, so pages never wait for one of these.
_THREADS = 1024


def is_upload_scope(scope: Any) -> bool:
    """Return True if an ASGI scope is that of an upload."""
    content_type = dict(scope["headers"]).get(b"content-type", b"").decode("latin1")
    return is_upload(scope["method"], scope["path"], content_type)


class _ArrivingBody:
    """The body as a file, read in the request's thread as fast as the client sends."""

    def __init__(self, receive: Any) -> None:
        self._receive = receive
        self._loop = asyncio.get_running_loop()
        self._waiting = bytearray()
        self._ended = asyncio.Event()
        self._is_cut_off = False

    def read(self, size: int = -1) -> bytes:
        """Return `size` bytes, fewer at the end, none after it. Never call it in the event loop.

        Raises OSError when the client goes away or is silent for a minute.
        """
        if size < 0:
            raise OSError("an upload is read in pieces, never whole")
        return asyncio.run_coroutine_threadsafe(self._pull(size), self._loop).result()

    async def _pull(self, size: int) -> bytes:
        while len(self._waiting) < size and not self._ended.is_set():
            async with asyncio.timeout(_SILENCE_ALLOWED_S):
                event: Event = await self._receive()
            if event["type"] == "http.disconnect":
                self._is_cut_off = True
                self._ended.set()
            else:
                self._waiting += event.get("body", b"")
                if not event.get("more_body", False):
                    self._ended.set()
        if self._is_cut_off:
            raise OSError("the client went away")
        taken = bytes(self._waiting[:size])
        del self._waiting[:size]
        return taken

    async def receive_after_body(self) -> Event:
        """Return the event after the body, by which Django learns that the client disconnected."""
        await self._ended.wait()
        event: Event = {"type": "http.disconnect"} if self._is_cut_off else await self._receive()
        return event

    def close(self) -> None:
        """Discard the bytes that have arrived and were not read."""
        self._waiting.clear()


class UploadHandler(RequestHandler):
    """Handles uploads as they arrive, in threads of their own, and everything else as usual."""

    def __init__(self) -> None:
        super().__init__()
        self._upload_threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="upload")

    def threads_for(self, scope: Any) -> ThreadPoolExecutor:
        """Return the thread pool of uploads, or that of requests."""
        return self._upload_threads if is_upload_scope(scope) else super().threads_for(scope)

    async def handle(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle one request."""
        if is_upload_scope(scope):
            receive = _ArrivingBody(receive).receive_after_body
        await super().handle(scope, receive, send)

    async def read_body(self, receive: Any) -> Any:
        """Return the file the request will read its body from."""
        body = getattr(receive, "__self__", None)
        return body if isinstance(body, _ArrivingBody) else await super().read_body(receive)
