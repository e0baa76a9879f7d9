"""Small real servers that misbehave on purpose."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Answer = Callable[[BaseHTTPRequestHandler], None]
NASTY = "\x1b[2J\x1b]0;owned\x07 \u202egnp.exe \x9b31m [red]markup[/red]\tand\nmore"


def answer_json(body: object, status: int = 200, **headers: str) -> Answer:
    """Answer with `body` as JSON."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        content = json.dumps(body).encode()
        handler.send_response(status)
        kind = "application/json" if status < 400 else "application/problem+json"
        defaults = {"Content-Type": kind, "Content-Length": str(len(content))}
        for name, value in (defaults | headers).items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(content)

    return answer


def cut_in_the_middle(handler: BaseHTTPRequestHandler) -> None:
    """Promise a hundred bytes, give ten, and hang up."""
    handler.send_response(200)
    handler.send_header("Content-Length", "100")
    handler.end_headers()
    handler.wfile.write(b"0123456789")
    handler.wfile.flush()
    handler.close_connection = True


def drip(stop: threading.Event) -> Answer:
    """Give one byte every tenth of a second until `stop`, so that no single wait is long."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        while not stop.wait(0.1):
            handler.wfile.write(b" ")
            handler.wfile.flush()
        handler.close_connection = True

    return answer


@contextmanager
def serve(choose: Callable[[str, str], Answer]) -> Iterator[str]:
    """Serve on a free port; `choose(method, path)` gives the answer. Yields the address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            size = int(self.headers.get("Content-Length", "0"))
            self.rfile.read(size)
            try:
                choose(self.command, self.path)(self)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True

        do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _answer  # noqa: N815  (their names)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Stay silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
