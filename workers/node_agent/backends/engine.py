"""The few calls of the Docker Engine's HTTP interface that the back end `docker` needs."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import httpx

_VERSION: Final = "v1.41"
_PATIENCE_S: Final = 30.0
_HEAD_LIMIT_BYTES: Final = 64 * 1024


class EngineError(Exception):
    """The engine refused, or is not there. The message is its own."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Engine:
    """One Docker Engine behind its socket."""

    def __init__(self, socket_path: Path, *, patience_s: float = _PATIENCE_S) -> None:
        self._path = socket_path
        self._patience_s = patience_s
        self._client = httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(uds=str(socket_path)),
            base_url=f"http://engine/{_VERSION}",
            timeout=patience_s,
        )

    def answers(self) -> bool:
        """Return whether an engine responds. Called once, when the agent starts."""
        if not self._path.is_socket():
            return False
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(2.0)
            try:
                probe.connect(str(self._path))
                probe.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
                return b" 200 " in probe.recv(64)
            except OSError:
                return False

    async def get(self, path: str, **query: str) -> Any:
        """GET a JSON document. Raises EngineError."""
        return (await self._call("GET", path, params=query)).json()

    async def post(self, path: str, body: Any = None, **query: str) -> Any:
        """POST a JSON document and return that of the response, or None. Raises EngineError."""
        response = await self._call("POST", path, params=query, json=body or {})
        return response.json() if response.content else None

    async def delete(self, path: str, **query: str) -> None:
        """DELETE a resource. A missing one is no error. Raises EngineError."""
        try:
            await self._call("DELETE", path, params=query)
        except EngineError as error:
            if error.status != httpx.codes.NOT_FOUND:
                raise

    async def build(self, context: bytes, **query: str) -> AsyncIterator[str]:
        """Build an image from a tar and yield its output. Raises EngineError if it fails."""
        request = self._client.stream(
            "POST",
            "/build",
            params=query,
            content=context,
            headers={"Content-Type": "application/x-tar"},
            timeout=httpx.Timeout(self._patience_s, read=None),
        )
        try:
            async with request as response:
                if response.is_error:
                    await response.aread()
                _raise_for(response)
                async for line in response.aiter_lines():
                    event = json.loads(line)
                    if "error" in event:
                        raise EngineError(0, str(event["error"]))
                    yield str(event.get("stream", ""))
        except httpx.HTTPError as error:
            raise self._failed(error) from error

    async def start_with_input(self, container: str, data: bytes) -> None:
        """Start a container with `data` as its whole standard input. Raises EngineError."""
        try:
            reader, writer = await asyncio.open_unix_connection(str(self._path))
        except OSError as error:
            raise self._failed(error) from error
        try:
            writer.write(
                f"POST /{_VERSION}/containers/{container}/attach?stream=1&stdin=1 HTTP/1.1\r\n"
                "Host: engine\r\nUpgrade: tcp\r\nConnection: Upgrade\r\n\r\n".encode("ascii")
            )
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), self._patience_s)
            if b" 101 " not in head.split(b"\r\n", 1)[0]:
                raise EngineError(0, f"attaching failed: {head[:200]!r}")
            await self.post(f"/containers/{container}/start")
            writer.write(data)
            writer.write_eof()
            await asyncio.wait_for(writer.drain(), self._patience_s)
            # The engine closes its side once the container has closed or read its input.
            await asyncio.wait_for(reader.read(1), self._patience_s)
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            raise self._failed(error) from error
        finally:
            writer.close()

    async def _call(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            response = await self._client.request(method, path, **options)
        except httpx.HTTPError as error:
            raise self._failed(error) from error
        _raise_for(response)
        return response

    def _failed(self, error: Exception) -> EngineError:
        """Return the error for a failed connection. Some exceptions have no message."""
        if isinstance(error, TimeoutError | httpx.TimeoutException):
            return EngineError(
                0,
                f"the Docker engine did not respond within {self._patience_s:g} s; run `docker "
                "info` on this node, and restart the engine if it does not respond",
            )
        return EngineError(0, f"{type(error).__name__}: {error}".removesuffix(": "))


def _raise_for(response: httpx.Response) -> None:
    if response.is_success or response.status_code == httpx.codes.NOT_MODIFIED:
        return
    try:
        message = str(response.json()["message"])
    except (ValueError, KeyError, TypeError):
        message = response.text[:200]
    raise EngineError(response.status_code, message)
