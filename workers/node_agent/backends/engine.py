"""The Docker Engine, driven by the `docker` package from asyncio, with errors in plain sentences.

The package blocks, so calls run in threads. They are not those of the event loop: an engine that
hangs would delay everything else that the agent does in threads.
"""

import asyncio
import io
import json
import os
import socket
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, TypeVar

import docker
import requests
import urllib3
from docker.credentials.errors import StoreError
from docker.errors import APIError, DockerException, StreamParseError
from docker.utils import version_lt

_Result = TypeVar("_Result")
# Docker 20.10. Older engines ignore `CgroupnsMode`, so containers would see the machine's groups.
_MIN_API: Final = "1.41"
_PATIENCE_S: Final = 30.0
_PROBE_S: Final = 2.0
_MAX_CALLS: Final = 32
_MAX_BUILDS: Final = 16
_TIMEOUTS: Final = (TimeoutError, requests.Timeout, urllib3.exceptions.TimeoutError)


class EngineError(Exception):
    """The engine refused, or is not there. `status` is that of HTTP, or 0 without a response."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Client(docker.APIClient):
    """The client of the package, with a timeout for `attach_socket` and a way to end a stream."""

    def __init__(self, path: Path, *, timeout_s: float, version: str = "auto") -> None:
        self._response: requests.Response | None = None
        self._aborted = False
        super().__init__(f"unix://{path.absolute()}", version, timeout_s, max_pool_size=_MAX_CALLS)

    def request(self, *args: Any, **options: Any) -> requests.Response:
        options.setdefault("timeout", self.timeout)
        # No proxies and no passwords from ~/.netrc: the engine is on this machine.
        self.trust_env = False
        response: requests.Response = super().request(*args, **options)
        self._response = response
        if options.get("stream"):
            # The timeout is for the response to begin: a build may be silent for minutes.
            self._disable_socket_timeout(self._get_raw_response_socket(response))
        if self._aborted:
            self.abort()
        return response

    def build_with(
        self, context: IO[bytes], parameters: dict[str, Any]
    ) -> Iterator[dict[str, Any]]:
        """Build with all parameters of the API, of which `build` of the package has some.

        No password of the agent's user goes with it.
        """
        response = self._post(
            self._url("/build"),
            data=context,
            params=parameters,
            headers={"Content-Type": "application/tar"},
            stream=True,
        )
        self._raise_for_status(response)
        events: Iterator[dict[str, Any]] = self._stream_helper(response, decode=True)
        return events

    def limit_processes(self, container: str, count: int) -> None:
        url = self._url("/containers/{0}/update", container)
        self._raise_for_status(self._post_json(url, data={"PidsLimit": count}))

    def written_bytes(self, container: str) -> int:
        response = self._get(self._url("/containers/{0}/json", container), params={"size": 1})
        if response.status_code == requests.codes.not_found:
            return 0
        self._raise_for_status(response)
        return int(response.json().get("SizeRw") or 0)

    def abort(self) -> None:
        """End the stream of the last response, which another thread reads."""
        self._aborted = True
        if self._response is not None:
            with suppress(OSError, ValueError):  # it has ended already
                self._response.raw.shutdown()

    def close(self) -> None:
        if self._response is not None:
            self._response.close()
        super().close()


@dataclass(frozen=True)
class BuildLimits:
    """Limits of the steps of a build, the network that they have, and its arguments."""

    memory_bytes: int
    cpu_millis: int
    network: str
    dockerfile: str
    arguments: dict[str, str]

    def parameters(self, tag: str) -> dict[str, Any]:
        """Return the parameters of the API."""
        return {
            "t": tag,
            "dockerfile": self.dockerfile,
            "nocache": "true",
            "rm": "true",
            "forcerm": "true",
            "networkmode": self.network,
            "memory": self.memory_bytes,
            "memswap": self.memory_bytes,
            "cpuperiod": 100_000,
            "cpuquota": self.cpu_millis * 100,
            "shmsize": max(self.memory_bytes // 2, 64 << 20),
            "ulimits": json.dumps([{"Name": "core", "Soft": 0, "Hard": 0}]),
            "buildargs": json.dumps(self.arguments),
        }


class Engine:
    """One Docker Engine behind its socket."""

    def __init__(self, socket_path: Path, *, patience_s: float = _PATIENCE_S) -> None:
        self._path = socket_path
        self._patience_s = patience_s
        self._shared: _Client | None = None
        self._calls = ThreadPoolExecutor(_MAX_CALLS, thread_name_prefix="docker-call")
        self._builds = ThreadPoolExecutor(_MAX_BUILDS, thread_name_prefix="docker-build")

    def probe(self) -> None:
        """Raise EngineError unless an engine responds. Called once, when the agent starts."""
        with self._plain_errors(_PROBE_S):
            self._connect(_PROBE_S).close()

    async def call(self, function: Callable[[Any], _Result]) -> _Result:
        """Return what a function of the client of the package returns. Raises EngineError."""

        def run() -> _Result:
            with self._plain_errors():
                return function(self._client())

        return await self._in_thread(self._calls, run)

    async def build(self, context: bytes, tag: str, write: Callable[[str], None]) -> None:
        """Build an image from a tar and write its output. Raises EngineError if it fails.

        Cancelling ends the build.
        """

        def begin(client: _Client) -> Iterator[dict[str, Any]]:
            events: Iterator[dict[str, Any]] = client.build(
                fileobj=io.BytesIO(context),
                custom_context=True,
                tag=tag,
                decode=True,
                timeout=self._patience_s,
                rm=True,
                forcerm=True,
                nocache=True,
            )
            return events

        async def write_here(event: dict[str, Any]) -> None:
            write(str(event.get("stream", "")))

        await self._stream(begin, write_here)

    async def build_within(
        self,
        limits: BuildLimits,
        context: IO[bytes],
        tag: str,
        on_event: Callable[[dict[str, Any]], Awaitable[None]],
    ) -> None:
        """Build an image whose steps have limits. Raises EngineError if it fails.

        `on_event` is awaited before the next event is read. Cancelling ends the build.
        """
        await self._stream(
            lambda client: client.build_with(context, limits.parameters(tag)), on_event
        )

    async def pull(self, image: str, on_event: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
        """Pull an image, without any password of the agent's user. Raises EngineError."""

        def begin(client: _Client) -> Iterator[dict[str, Any]]:
            events: Iterator[dict[str, Any]] = client.pull(
                image, stream=True, decode=True, auth_config={}
            )
            return events

        await self._stream(begin, on_event)

    async def push(
        self,
        repository: str,
        tag: str,
        account: dict[str, str],
        on_event: Callable[[dict[str, Any]], Awaitable[None]],
    ) -> None:
        """Push an image, with this account alone. Raises EngineError."""

        def begin(client: _Client) -> Iterator[dict[str, Any]]:
            # An empty account makes the package read that of the agent's user.
            auth = account or {"username": "", "password": ""}
            events: Iterator[dict[str, Any]] = client.push(
                repository, tag, stream=True, decode=True, auth_config=auth
            )
            return events

        await self._stream(begin, on_event)

    async def limit_processes(self, container: str, count: int) -> None:
        """Limit the processes of a container that a build has created. Raises EngineError."""
        await self.call(lambda docker: docker.limit_processes(container, count))

    async def written_bytes(self, container: str) -> int:
        """Return the bytes that a container has written, 0 if it is gone. Raises EngineError."""
        return await self.call(lambda docker: docker.written_bytes(container))

    async def _stream(
        self,
        begin: Callable[[_Client], Iterator[dict[str, Any]]],
        on_event: Callable[[dict[str, Any]], Awaitable[None]],
    ) -> None:
        loop = asyncio.get_running_loop()
        client = await self.call(self._stream_client)

        async def handle(event: dict[str, Any]) -> None:
            await on_event(event)

        def run() -> None:
            with self._plain_errors(), client:
                for event in begin(client):
                    if "error" in event:
                        raise EngineError(0, str(event["error"]))
                    asyncio.run_coroutine_threadsafe(handle(event), loop).result()

        await self._in_thread(self._builds, run, on_cancel=client.abort)

    async def start_with_input(self, container: str, data: bytes) -> None:
        """Start a container with `data` as its whole standard input. Raises EngineError."""

        def run(shared: Any) -> None:
            with self._stream_client(shared) as client:
                stream = client.attach_socket(container, {"stream": 1, "stdin": 1})
                # The package returns a stream that can only be read.
                with socket.socket(fileno=os.dup(stream.fileno())) as connection:
                    connection.settimeout(self._patience_s)
                    shared.start(container)
                    connection.sendall(data)
                    connection.shutdown(socket.SHUT_WR)
                    # The engine closes its side once the container has closed or read its input.
                    connection.recv(1)

        await self.call(run)

    def _connect(self, timeout_s: float) -> _Client:
        client = _Client(self._path, timeout_s=timeout_s)
        if version_lt(client.api_version, _MIN_API):
            raise EngineError(
                0,
                f"the Docker engine has version {client.api_version} of its API, and Slipway needs "
                f"{_MIN_API}; update it to Docker 20.10 or later",
            )
        return client

    def _client(self) -> _Client:
        """Return the shared client. The first calls connect, without waiting for each other."""
        client = self._shared
        if client is None:
            client = self._shared = self._connect(self._patience_s)
        return client

    def _stream_client(self, shared: Any) -> _Client:
        """Return a client of its own for a stream, so that closing it closes the connection."""
        return _Client(self._path, timeout_s=self._patience_s, version=shared.api_version)

    @staticmethod
    async def _in_thread(
        threads: ThreadPoolExecutor,
        function: Callable[[], _Result],
        *,
        on_cancel: Callable[[], None] = lambda: None,
    ) -> _Result:
        future = asyncio.get_running_loop().run_in_executor(threads, function)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            # Wait for it, so that whoever removes a container next finds it.
            on_cancel()
            with suppress(EngineError):
                await future
            raise

    @contextmanager
    def _plain_errors(self, timeout_s: float | None = None) -> Iterator[None]:
        try:
            yield
        except APIError as error:
            message = str(error.explanation or error)
            raise EngineError(error.status_code or 0, message) from error
        except (
            *(DockerException, StoreError, StreamParseError, OSError),
            *(requests.RequestException, urllib3.exceptions.HTTPError),
        ) as error:
            raise EngineError(0, self._sentence(error, timeout_s or self._patience_s)) from error

    def _sentence(self, error: BaseException, timeout_s: float) -> str:
        causes = list(_causes(error))
        if any(isinstance(cause, _TIMEOUTS) for cause in causes):
            return (
                f"the Docker engine did not respond within {timeout_s:g} s; run `docker "
                "info` on this node, and restart the engine if it does not respond"
            )
        if any(isinstance(cause, PermissionError) for cause in causes):
            return (
                f"the node agent may not open {self._path}; add its user to the group of the "
                "socket, usually `docker`, and restart the agent"
            )
        if any(isinstance(cause, FileNotFoundError | ConnectionRefusedError) for cause in causes):
            return (
                f"no Docker engine listens on {self._path}; start it, or give the agent its socket "
                "with --docker-socket"
            )
        return f"{type(error).__name__}: {error}".removesuffix(": ")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
