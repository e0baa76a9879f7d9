"""Connections to MLflow's server that end at the wrong moment, or after a failure."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from portal.api.mlflow.answers import Refusal
from portal.api.mlflow.upstream import MlflowServer

pytestmark = pytest.mark.postgres


class DroppingServer:
    """An HTTP server that answers, and then drops the connection on the next request.

    Like uvicorn after an exception it does not say so in the answer. `/again` is answered so that
    the connection stays usable.
    """

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        self.connections += 1
        is_usable = True
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                if not is_usable:
                    return
                target = head.split(b" ")[1].decode()
                self.requests.append(target)
                lengths = [
                    int(line.partition(b":")[2])
                    for line in head.lower().split(b"\r\n")
                    if line.startswith(b"content-length:")
                ]
                await reader.readexactly(lengths[0] if lengths else 0)
                status = b"500 Failed" if target == "/fail" else b"200 OK"
                writer.write(b"HTTP/1.1 %s\r\nContent-Length: 2\r\n\r\nok" % status)
                is_usable = target == "/again"
        except asyncio.IncompleteReadError:
            return
        finally:
            writer.close()


class Client:
    """Requests through the portal's side of the connection."""

    def __init__(self) -> None:
        self.upstream = MlflowServer()

    async def send(
        self,
        method: str,
        target: str,
        body: bytes | AsyncIterator[bytes] = b"",
        **options: Any,
    ) -> int:
        """Send a request; returns the status that its client gets."""
        statuses: list[int] = []

        async def send(event: Any) -> None:
            if event["type"] == "http.response.start":
                statuses.append(event["status"])

        scope = {"method": method, "headers": []}
        try:
            await self.upstream.pass_on(
                scope, send, target=target, project_id="prj_1", body=body, **options
            )
        except Refusal as refusal:
            return refusal.status
        return statuses[0]


@pytest.fixture
def socket_path(tmp_path: Path, settings: Settings) -> Path:
    path = tmp_path / "tracking.sock"
    settings.SLIPWAY_TRACKING_SOCKET = path
    settings.SLIPWAY_TRACKING_SECRET = "secret"
    return path


async def _statuses(path: Path, *requests: tuple[Any, ...], **options: Any) -> list[int]:
    server = DroppingServer()
    async with await asyncio.start_unix_server(server.serve, path):
        client = Client()
        return [await client.send(*request, **options) for request in requests]


def test_a_connection_is_not_reused_after_a_failure(socket_path: Path) -> None:
    requests = [("POST", "/fail", b"{}"), ("POST", "/again", b"{}")] * 5
    assert asyncio.run(_statuses(socket_path, *requests)) == [500, 200] * 5


def test_connections_are_reused_otherwise(socket_path: Path) -> None:
    async def connections() -> int:
        server = DroppingServer()
        async with await asyncio.start_unix_server(server.serve, socket_path):
            client = Client()
            for _ in range(5):
                assert await client.send("POST", "/again", b"{}") == 200
        return server.connections

    assert asyncio.run(connections()) == 1


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_a_request_lost_with_an_old_connection_is_repeated(socket_path: Path, method: str) -> None:
    requests = [("GET", "/last"), (method, "/last", b"{}"), (method, "/last", b"{}")]
    assert asyncio.run(_statuses(socket_path, *requests)) == [200, 200, 200]


def test_a_search_is_repeated_and_a_change_is_not(socket_path: Path) -> None:
    requests = [("POST", "/last", b"{}"), ("POST", "/last", b"{}")]
    assert asyncio.run(_statuses(socket_path, *requests, changes_nothing=True)) == [200, 200]
    socket_path.unlink(missing_ok=True)
    assert asyncio.run(_statuses(socket_path, *requests)) == [200, 503]


def test_a_body_that_was_read_is_not_sent_again(socket_path: Path) -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield b"{}"

    async def statuses() -> list[int]:
        requests = [("GET", "/last"), ("PUT", "/last", parts()), ("PUT", "/last", parts())]
        return await _statuses(socket_path, *requests)

    # The last one finds no old connection.
    assert asyncio.run(statuses()) == [200, 503, 200]
