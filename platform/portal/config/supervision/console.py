"""One readable log of many processes: on the terminal and, rotated, in a file."""

import contextlib
import os
import re
import select
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

# The output of a process may contain untrusted input, which must not control the terminal.
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")
_COLOURS = ("36", "32", "33", "35", "34", "96", "92", "93", "95", "94")
_LONGEST_LINE_BYTES = 64 * 1024
_CHUNKS_AT_ONCE = 4


def _escape_control_characters(text: str) -> str:
    return _CONTROL.sub(lambda match: f"\\x{ord(match.group()):02x}", text)


class RotatingFile:
    """An append-only log of at most `max_bytes`, with `keep` older ones beside it."""

    def __init__(self, path: Path, *, max_bytes: int = 10 * 1024 * 1024, keep: int = 5) -> None:
        self.path = path
        self.max_bytes = max_bytes
        self.keep = keep
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._open()

    def _open(self) -> None:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._file = os.fdopen(descriptor, "ab", buffering=0)
        self._size = self.path.stat().st_size

    def _numbered(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")

    def write(self, line: str) -> None:
        """Append one line, rotating the file when it is full. Raise OSError, as on a full disk."""
        data = f"{line}\n".encode()
        if self._size and self._size + len(data) > self.max_bytes:
            self._file.close()
            for number in range(self.keep - 1, 0, -1):
                with contextlib.suppress(FileNotFoundError):
                    self._numbered(number).replace(self._numbered(number + 1))
            self.path.replace(self._numbered(1))
            self._open()
        self._file.write(data)
        self._size += len(data)


class Console:
    """Prints lines prefixed with the name of the process that wrote them."""

    def __init__(self, terminal: TextIO, file: RotatingFile | None, names: list[str]) -> None:
        self._terminal: TextIO | None = terminal
        self._descriptor = _descriptor_of(terminal)
        self._unshown = 0
        self._file = file
        self._file_failed = False
        self._width = max(map(len, names), default=0)
        colourful = terminal.isatty() and "NO_COLOR" not in os.environ
        self._colour = (
            {name: _COLOURS[index % len(_COLOURS)] for index, name in enumerate(names)}
            if colourful
            else {}
        )

    def line(self, name: str, text: str, *, only_file: bool = False) -> None:
        """Log one line of `name`. `only_file` keeps it off the terminal."""
        text = _escape_control_characters(text)
        self._to_file(name, text)
        if not only_file:
            self._to_terminal(name, text)

    def _to_file(self, name: str, text: str) -> None:
        if self._file is None:
            return
        stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        try:
            self._file.write(f"{stamp} {name:<{self._width}} | {text}")
        except OSError as error:
            if not self._file_failed:
                self._to_terminal(
                    name, f"(the log file {self._file.path} cannot be written: {error.strerror})"
                )
            self._file_failed = True
        else:
            self._file_failed = False

    def _to_terminal(self, name: str, text: str) -> None:
        if self._terminal is None:
            return
        if not self._is_writable():
            self._unshown += 1
            return
        if self._unshown:
            note, self._unshown = f"({self._unshown} lines are only in the log file)", 0
            self._to_terminal(name, note)
        label = f"{name:<{self._width}} |"
        if name in self._colour:
            label = f"\x1b[{self._colour[name]}m{label}\x1b[0m"
        try:
            self._terminal.write(f"{label} {text}\n")
            self._terminal.flush()
        except (OSError, ValueError):
            self._terminal = None  # its reader is gone, the file continues

    def _is_writable(self) -> bool:
        """Return True if the terminal accepts a line now: a paused one must not block."""
        if self._descriptor is None:
            return True
        return bool(select.select([], [self._descriptor], [], 0)[1])


def _descriptor_of(terminal: TextIO) -> int | None:
    try:
        return terminal.fileno()
    except (OSError, ValueError):
        return None


class LineReader:
    """Splits the output of a pipe into lines and emits each."""

    def __init__(self, descriptor: int, emit: Callable[[str], None]) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._emit = emit
        self._rest = b""

    def read(self) -> bool:
        """Emit the lines available now. Return False once the other end is closed.

        It reads a few pipes' worth at most, so that a process that floods does not block others.
        """
        for _ in range(_CHUNKS_AT_ONCE):
            try:
                chunk = os.read(self._descriptor, 65536)
            except BlockingIOError:
                return True
            if not chunk:
                self._flush()
                return False
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            for line in lines:
                self._emit(line.decode(errors="replace").rstrip("\r"))
            if len(self._rest) > _LONGEST_LINE_BYTES:
                self._flush()
        return True

    def _flush(self) -> None:
        if self._rest:
            self._emit(self._rest.decode(errors="replace"))
        self._rest = b""
