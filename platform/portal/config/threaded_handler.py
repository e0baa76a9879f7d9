"""Django's ASGI handler, with one thread for a request from its beginning to its end.

All our middleware and views are ordinary functions. Django's own handler starts a thread for each
request and moves it between that and the event loop half a dozen times: as much work as
a small request itself. Here a waiting thread handles the request and returns its response.
The thread keeps its SQLite connection open. PostgreSQL connections go back to their pool.
"""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context, copy_context
from typing import Any, Final

from asgiref.sync import sync_to_async
from django.core import signals
from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler, get_script_prefix
from django.db import close_old_connections, connections
from django.http import FileResponse, HttpResponse
from django.http.response import HttpResponseBase
from django.urls import set_script_prefix

from portal.config.requests import PortalRequest
from portal.core.db_patience import Patience, limited_by

# Probes have threads of their own: they respond even if all others wait for the database.
_PROBES: Final = {"/healthz": 2, "/readyz": 4}
# More threads than database connections: later requests queue for a connection.
_THREADS: Final = 64


class RequestHandler(ASGIHandler):
    """Runs each request in a thread pool. Streaming responses release their thread."""

    request_class = PortalRequest

    def __init__(self) -> None:
        super().__init__()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="request")
        self._probe_threads = {
            path: ThreadPoolExecutor(count, thread_name_prefix=f"probe {path}")
            for path, count in _PROBES.items()
        }

    def load_middleware(self, is_async: bool = False) -> None:
        """Load the middleware for a thread, whatever the base class asks for."""
        super().load_middleware(is_async=False)

    async def handle(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle one request."""
        try:
            body = await self.read_body(receive)
        except RequestAborted:
            return
        context = copy_context()
        answer = await asyncio.get_running_loop().run_in_executor(
            self.threads_for(scope), context.run, self._answer, scope, body, time.monotonic()
        )
        if answer.streaming:
            await self._stream(answer, context, receive, send)
        else:
            await self.send_response(answer, send)

    def threads_for(self, scope: Any) -> ThreadPoolExecutor:
        """Return the thread pool of this request."""
        return self._probe_threads.get(scope["path"], self._threads)

    def _answer(self, scope: Any, body: Any, queued_at: float) -> Any:
        """Process the request in a thread and return the response to send."""
        with limited_by(Patience(queued_s=time.monotonic() - queued_at)):
            return self._answer_in_time(scope, body)

    def _answer_in_time(self, scope: Any, body: Any) -> Any:
        set_script_prefix(get_script_prefix(scope))
        signals.request_started.send(sender=self.__class__, scope=scope)
        try:
            request, refusal = self.create_request(scope, body)
            answer: Any = refusal if request is None else self.get_response(request)
        finally:
            body.close()
        answer._handler_class = self.__class__  # noqa: SLF001  (sender of request_finished)
        if isinstance(answer, FileResponse):
            answer = _read(answer)
        if answer.streaming:
            close_old_connections()
        else:
            answer.close()
        return answer

    async def _stream(self, answer: Any, context: Context, receive: Any, send: Any) -> None:
        """Send a response piece by piece, until it ends or the client disconnects."""
        loop = asyncio.get_running_loop()
        sending = loop.create_task(self.send_response(answer, send), context=context)
        leaving = loop.create_task(self.listen_for_disconnect(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)
            await sync_to_async(_close, thread_sensitive=True)(answer)
        if not sending.cancelled():
            sending.result()  # raises the response's error, so that it is not completed


def _read(file: FileResponse) -> HttpResponse:
    """Return a file response as an ordinary one: Django, too, would read all of it to send it."""
    answer = HttpResponse(b"".join(file.streaming_content), status=file.status_code)  # type: ignore[arg-type]
    answer.headers = file.headers
    answer.cookies = file.cookies
    answer._handler_class = file._handler_class  # type: ignore[attr-defined]  # noqa: SLF001
    answer._resource_closers = file._resource_closers  # type: ignore[attr-defined]  # noqa: SLF001
    return answer


def _close(answer: HttpResponseBase) -> None:
    """End a stream, in a thread that ends with it."""
    answer.close()
    connections.close_all()
