"""A notebook server finds the Hub by the name it has on this machine."""

import asyncio
import http.server
import socket
import threading
from typing import Any

import aiohttp
import aiohttp.connector
import pytest

from workers.lab.server import use_system_resolver

_HUB, _ITS_ADDRESS = "notebooks.localhost", "127.0.0.2"


class _Hub(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


async def _status_of(url: str) -> int:
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return answer.status


def test_a_name_below_localhost_leads_where_this_machine_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = socket.getaddrinfo

    def with_the_hub(host: Any, *rest: Any, **named: Any) -> Any:
        return known(_ITS_ADDRESS if host == _HUB else host, *rest, **named)

    monkeypatch.setattr(socket, "getaddrinfo", with_the_hub)
    # Put back afterwards what is set for the whole process.
    before = vars(aiohttp.connector)["DefaultResolver"]
    monkeypatch.setattr("aiohttp.connector.DefaultResolver", before)
    use_system_resolver()
    with http.server.HTTPServer((_ITS_ADDRESS, 0), _Hub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            assert asyncio.run(_status_of(f"http://{_HUB}:{server.server_port}/")) == 200
        finally:
            server.shutdown()
