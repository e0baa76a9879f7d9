"""The container in which the task of an allocation runs: an image of its project.

It is in the same pod, or the agent has started it (`image_runtimes`). It shares the data folder and
the processes with the agent, and nothing of ours is in it. Its first process
(`workers.launcher.task_starter`) connects to a socket that the agent serves, describes the image,
becomes the parent of the task's shim, and ends with it.
"""

import json
import os
import re
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, Field, ValidationError

from slipway.schemas.agent import GpuFacts
from workers.node_agent.backends.image_records import environment_of
from workers.node_agent.errors import AgentError

_CONNECTS_WITHIN_S: Final = 300.0
_LOOK_EVERY_S: Final = 0.2
_MOST_BYTES: Final = 1 << 20
_BLOCK: Final = 1 << 16
# Kubernetes sets them for its own API, which tasks have no account of.
_OF_KUBERNETES = re.compile(r"KUBERNETES_\w+")

_Path = Annotated[str, Field(pattern=r"^/[^\x00\n]{1,4000}$")]


class ContainerGpu(BaseModel):
    """A card that the task sees."""

    uuid: Annotated[str, Field(max_length=100)]
    model: Annotated[str, Field(max_length=64)]
    memory_bytes: Annotated[int, Field(ge=0, lt=2**53)]


class ImageDescription(BaseModel):
    """An image as the starter in it describes it. `readable` are its folders without ours.

    `tmp` is the folder for temporary files that the container alone has, "" without one.
    """

    python: _Path
    variables: Annotated[list[str], Field(max_length=10_000)]
    readable: Annotated[list[_Path], Field(max_length=10_000)]
    gpus: Annotated[list[ContainerGpu], Field(max_length=1024)]
    tmp: _Path | Literal[""] = ""


class TaskContainer:
    """The connection to the container of the task, which starts one shim."""

    def __init__(self, connection: socket.socket, image: ImageDescription) -> None:
        self._connection: socket.socket | None = connection
        self.python = image.python
        self.readable = tuple(image.readable)
        self.tmp = image.tmp
        variables = environment_of(image.variables)
        self.variables = {
            name: value for name, value in variables.items() if not _OF_KUBERNETES.fullmatch(name)
        }
        self.gpus = [
            (gpu.uuid, GpuFacts(index=index, model=gpu.model, memory_bytes=gpu.memory_bytes))
            for index, gpu in enumerate(image.gpus)
        ]

    @classmethod
    def wait(
        cls,
        path: Path,
        *,
        within_s: float = _CONNECTS_WITHIN_S,
        obstacle: Callable[[], str] = lambda: "",
    ) -> "TaskContainer":
        """Wait for the container of the task to connect. Raises AgentError.

        `obstacle` returns why it never will, "" while it may.
        """
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen(1)
            try:
                connection = _accept(listener, within_s, obstacle)
            finally:
                # Nobody else starts anything: the task could leave its confinement by it.
                path.unlink(missing_ok=True)
        connection.settimeout(within_s)
        try:
            image = ImageDescription.model_validate_json(_line(connection))
        except (OSError, ValidationError) as error:
            raise AgentError("The container of the task did not describe its image.") from error
        return cls(connection, image)

    def close(self) -> None:
        """End the container, unless it has started a program."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def start(self, arguments: Sequence[str], launch: bytes, log: Path) -> None:
        """Start a program of the image's Python with `launch` as its input. Raises OSError.

        Its output goes to the file `log`.
        """
        connection, self._connection = self._connection, None
        if connection is None:
            raise OSError("the container of the task has started one already")
        header = {"arguments": list(arguments), "size": len(launch), "log": os.fspath(log)}
        with connection:
            connection.sendall(json.dumps(header).encode() + b"\n" + launch)
            with suppress(OSError):
                connection.shutdown(socket.SHUT_WR)


def _accept(listener: socket.socket, within_s: float, obstacle: Callable[[], str]) -> socket.socket:
    until = time.monotonic() + within_s
    listener.settimeout(min(_LOOK_EVERY_S, within_s))
    while True:
        try:
            return listener.accept()[0]
        except TimeoutError as error:
            if reason := obstacle():
                raise AgentError(f"The container of the task did not start: {reason}") from error
            if time.monotonic() >= until:
                raise AgentError(
                    f"The container of the task did not start within {within_s:g} s."
                ) from error


def _line(connection: socket.socket) -> bytes:
    data = b""
    while not data.endswith(b"\n") and len(data) < _MOST_BYTES:
        block = connection.recv(_BLOCK)
        if not block:
            break
        data += block
    return data
