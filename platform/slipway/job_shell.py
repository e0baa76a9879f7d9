"""A shell in the task of a running job: its output as it comes, and what is typed into it."""

import base64
import time
from collections.abc import Iterator

from slipway.connection import Connection
from slipway.errors import Conflict, ConnectionFailed, RateLimited, ServerError, Unavailable
from slipway.schemas.shells import (
    MAX_INPUT_BYTES,
    ShellEnd,
    ShellInput,
    ShellOut,
    ShellOutput,
    ShellSize,
)
from slipway.server_events import read_events

_PASSING = (ConnectionFailed, Unavailable, RateLimited, ServerError)
# The server sends something at least every 10 s.
_SILENCE_S = 45.0
# A shell that nobody follows for a minute ends.
_PATIENCE_S = 50.0
_AGAIN_S = 0.5
_BUSY_TRIES = 60
_NOT_READY = "shell_not_ready"


class JobShell:
    """An open shell. `details` say where it is. `end` is None until it has ended."""

    def __init__(self, connection: Connection, path: tuple[str, ...], details: ShellOut) -> None:
        self._connection = connection
        self._path = (*path, details.id)
        self._typed = 0
        self.details = details
        self.end: ShellEnd | None = None

    def output(self, *, rows: int = 24, columns: int = 80) -> Iterator[bytes]:
        """Start the shell in a window, and yield its output until it ends.

        The first piece is empty: from then on it takes input. A broken connection is reopened.
        """
        offset = 0
        failing_since: float | None = None
        while self.end is None:
            query = {"rows": rows, "columns": columns, "offset": offset}
            try:
                segments = (*self._path, "output")
                with self._connection.stream(*segments, query=query, timeout_s=_SILENCE_S) as body:
                    for event in read_events(body):
                        failing_since = None
                        if event.name == "ready":
                            yield b""
                        elif event.name == "output":
                            piece = ShellOutput.model_validate_json(event.data)
                            data = base64.b64decode(piece.output)
                            yield data[max(0, offset - piece.offset) :]
                            offset = max(offset, piece.offset + len(data))
                        elif event.name == "end":
                            self.end = ShellEnd.model_validate_json(event.data)
                            return
            except _PASSING:
                failing_since = failing_since or time.monotonic()
                if time.monotonic() - failing_since > _PATIENCE_S:
                    raise
            time.sleep(_AGAIN_S)

    def type(self, data: bytes) -> None:
        """Type bytes into the shell. Raises SlipwayError, Conflict once it has ended."""
        for start in range(0, len(data), MAX_INPUT_BYTES):
            piece = data[start : start + MAX_INPUT_BYTES]
            body = ShellInput(offset=self._typed, data=base64.b64encode(piece).decode())
            for attempt in range(_BUSY_TRIES):
                try:
                    self._connection.send("PUT", *self._path, "input", body=body)
                    break
                except (Unavailable, RateLimited, Conflict) as error:
                    is_passing = not isinstance(error, Conflict) or error.code == _NOT_READY
                    if attempt == _BUSY_TRIES - 1 or not is_passing:
                        raise
                    time.sleep(_AGAIN_S)
            self._typed += len(piece)

    def resize(self, rows: int, columns: int) -> None:
        """Set the size of its window."""
        body = ShellSize(rows=rows, columns=columns)
        self._connection.send("PUT", *self._path, "size", body=body)

    def close(self) -> None:
        """End the shell. One that has ended stays so."""
        self._connection.send("DELETE", *self._path)
