"""Shells in the sandbox of a running task, for people who debug it.

The shim listens on a Unix socket that only the agent can reach. A connection sends one request, a
line of JSON. `open` starts a shell, `input`, `resize` and `close` act on it, and each gets one line
as its answer. `follow` gets the output as lines of JSON until the shell has ended. So a shell
survives connections: its last output is kept, and followers say from which offset on they need it.
"""

import base64
import binascii
import json
import os
import selectors
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from workers.launcher.network import listen_on_path
from workers.launcher.processes import descendants, send_group, uptime_s
from workers.launcher.terminal import Terminal

MAX_SHELLS: Final = 8
MAX_INPUT_BYTES: Final = 64 << 10
_MOST_CONNECTIONS: Final = 64
_LINE_LIMIT: Final = 128 << 10
_READ_BYTES: Final = 32 << 10
_KEPT_BYTES: Final = 256 << 10
_UNSENT_LIMIT: Final = 128 << 10
# Shells that nobody follows end: the terminal was closed, or its network is gone.
_ALONE_S: Final = 60.0
_REMEMBERED: Final = 64
_ID_LIMIT: Final = 64
_LARGEST_SIZE: Final = 1000

Start = Callable[[int, int, int], Terminal]


class BadRequest(Exception):
    """A request that cannot be fulfilled, with a code for the portal."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.answer = {"error": code, "detail": detail}


@dataclass
class _Shell:
    """A shell and its last output, which begins at the offset `dropped`.

    `read_to` is the offset up to which somebody has got it, and `reason` says why it ended.
    """

    terminal: Terminal
    output: bytearray = field(default_factory=bytearray)
    dropped: int = 0
    unwritten: bytearray = field(default_factory=bytearray)
    typed: int = 0
    read_to: int = 0
    is_open: bool = True
    is_at_end: bool = False
    exit_code: int | None = None
    reason: str = "closed"
    followed_at_s: float = field(default_factory=uptime_s)

    @property
    def size(self) -> int:
        """Return the number of bytes that it has written in all."""
        return self.dropped + len(self.output)

    def append(self, data: bytes) -> None:
        self.output += data
        surplus = len(self.output) - _KEPT_BYTES
        if surplus > 0:
            del self.output[:surplus]
            self.dropped += surplus


class _Connection:
    """A connection of the portal. Followers have a shell and the offset up to which they got it."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.received = bytearray()
        self.unsent = bytearray()
        self.followed: _Shell | None = None
        self.offset = 0
        self.is_last = False

    def send_line(self, document: dict[str, Any]) -> None:
        self.unsent += json.dumps(document, separators=(",", ":")).encode() + b"\n"


class TaskShells:
    """The shells of one task. Everything happens in the loop of its shim and never blocks."""

    def __init__(self, path: str, selector: selectors.BaseSelector, start: Start) -> None:
        """`start` starts a shell for a rank, with rows and columns. It may raise OSError."""
        self._selector = selector
        self._start = start
        self._shells: dict[str, _Shell] = {}
        self._connections: set[_Connection] = set()
        self._listener = listen_on_path(path) if path else None
        if self._listener is not None:
            self._listener.setblocking(False)
            selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def release(self) -> None:
        """In a forked rank: forget the socket, whose number may be used again."""
        if self._listener is not None:
            self._listener.detach()
            self._listener = None

    def exited(self, pid: int, code: int) -> None:
        """Note the end of a child of the shim, if it was a shell."""
        for shell in self._shells.values():
            if shell.terminal.pid == pid and shell.is_open:
                # As shells report it: 130 for one that SIGINT has ended.
                shell.exit_code = code if code >= 0 else 128 - code
                shell.reason = "exit"
                while self._read(shell, _READ_BYTES):
                    pass
                self._close_terminal(shell)

    def processes(self) -> set[int]:
        """Return the processes of open shells, and what they have started below themselves."""
        pids = [shell.terminal.pid for shell in self._shells.values() if shell.is_open]
        return {*pids, *(below for pid in pids for below in descendants(pid))}

    def step(self) -> None:
        """Close shells that nobody follows. Call it several times a second."""
        followed = {id(it.followed) for it in self._connections}
        for shell in self._shells.values():
            if id(shell) in followed:
                shell.followed_at_s = uptime_s()
            elif shell.is_open and uptime_s() - shell.followed_at_s > _ALONE_S:
                self._hang_up(shell, "unattended")

    def close(self) -> None:
        """End all shells and connections. The task has ended."""
        for shell in self._shells.values():
            self._hang_up(shell, "task_ended")
        for connection in list(self._connections):
            self._drop(connection)
        if self._listener is not None:
            self._selector.unregister(self._listener)
            with suppress(OSError):
                os.unlink(self._listener.getsockname())  # noqa: PTH108
            self._listener.close()
            self._listener = None

    # Connections

    def _accept(self, _mask: int) -> None:
        assert self._listener is not None  # noqa: S101 - it is registered while it exists
        try:
            accepted, _ = self._listener.accept()
        except OSError:
            return
        if len(self._connections) >= _MOST_CONNECTIONS:
            accepted.close()
            return
        accepted.setblocking(False)
        connection = _Connection(accepted)
        self._connections.add(connection)
        self._selector.register(
            accepted, selectors.EVENT_READ, lambda mask: self._on_ready(connection, mask)
        )

    def _on_ready(self, connection: _Connection, mask: int) -> None:
        try:
            if mask & selectors.EVENT_READ and not self._receive(connection):
                return
            self._send(connection)
        except OSError:
            self._drop(connection)

    def _receive(self, connection: _Connection) -> bool:
        """Read from a connection, and answer a whole request. Return False if it is closed."""
        data = connection.socket.recv(_READ_BYTES)
        if not data:
            self._drop(connection)
            return False
        if connection.is_last or connection.followed is not None:
            return True  # there is one request a connection
        connection.received += data
        line, separator, _ = connection.received.partition(b"\n")
        if separator:
            self._answer(connection, bytes(line))
        elif len(connection.received) > _LINE_LIMIT:
            self._drop(connection)
            return False
        return True

    def _answer(self, connection: _Connection, line: bytes) -> None:
        try:
            answer = self._execute(connection, json.loads(line))
        except BadRequest as error:
            answer = error.answer
        except OSError as error:
            answer = {"error": "not_started", "detail": error.strerror or str(error)}
        except (ValueError, TypeError, KeyError, AttributeError):
            answer = {"error": "invalid", "detail": "The request is not valid."}
        if answer is not None:
            connection.send_line(answer)
            connection.is_last = True

    def _send(self, connection: _Connection) -> None:
        """Send what is due, as far as the connection takes it now."""
        self._fill(connection)
        if connection.unsent:
            with suppress(BlockingIOError):
                sent = connection.socket.send(connection.unsent)
                del connection.unsent[:sent]
        if not connection.unsent and connection.is_last:
            self._drop(connection)
            return
        followed = connection.followed
        is_behind = followed is not None and connection.offset < followed.size
        has_more = bool(connection.unsent) or is_behind
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if has_more else 0)
        key = self._selector.get_key(connection.socket)
        if key.events != events:
            self._selector.modify(connection.socket, events, key.data)
        if followed is not None:
            self._listen_to(followed)

    def _fill(self, connection: _Connection) -> None:
        """Add output of the followed shell to what is sent, and its end after all of that."""
        shell = connection.followed
        if shell is None or connection.is_last:
            return
        connection.offset = max(connection.offset, shell.dropped)
        while connection.offset < shell.size and len(connection.unsent) < _UNSENT_LIMIT:
            start = connection.offset - shell.dropped
            piece = bytes(shell.output[start : start + _READ_BYTES])
            text = base64.b64encode(piece).decode()
            connection.send_line({"offset": connection.offset, "output": text})
            connection.offset += len(piece)
        shell.read_to = max(shell.read_to, connection.offset)
        if connection.offset >= shell.size and not shell.is_open:
            end = {"exit_code": shell.exit_code, "reason": shell.reason}
            connection.send_line({"offset": shell.size, "end": end})
            connection.is_last = True

    def _drop(self, connection: _Connection) -> None:
        self._connections.discard(connection)
        with suppress(KeyError, ValueError):
            self._selector.unregister(connection.socket)
        connection.socket.close()
        if connection.followed is not None:
            self._listen_to(connection.followed)

    # Requests

    def _execute(self, connection: _Connection, request: dict[str, Any]) -> dict[str, Any] | None:
        """Fulfil a request and return the answer, None for a follower. Raises BadRequest."""
        name = str(request["shell"])[:_ID_LIMIT]
        if request["op"] == "open":
            self._open(name, request)
            return {"ok": True}
        shell = self._shells.get(name)
        if shell is None:
            raise BadRequest("no_such_shell", "There is no such shell.")
        if request["op"] == "follow":
            for earlier in [it for it in self._connections if it.followed is shell]:
                self._drop(earlier)
            connection.followed = shell
            connection.offset = min(max(0, int(request["offset"])), shell.size)
            shell.followed_at_s = uptime_s()
            return None
        if request["op"] == "close":
            self._hang_up(shell, "closed")
            return {"ok": True}
        if not shell.is_open:
            raise BadRequest("shell_ended", "The shell has ended.")
        if request["op"] == "resize":
            shell.terminal.resize(*_size_of(request))
        elif request["op"] == "input":
            self._type(shell, int(request["offset"]), _decoded(request["data"]))
        else:
            raise BadRequest("invalid", "There is no such operation.")
        return {"ok": True}

    def _open(self, name: str, request: dict[str, Any]) -> None:
        if name in self._shells:
            return  # the answer was lost, and the request repeated
        if sum(shell.is_open for shell in self._shells.values()) >= MAX_SHELLS:
            raise BadRequest("too_many_shells", f"A task has at most {MAX_SHELLS} shells.")
        if len(self._shells) >= _REMEMBERED:
            ended = next(name for name, shell in self._shells.items() if not shell.is_open)
            del self._shells[ended]
        shell = _Shell(self._start(int(request["rank"]), *_size_of(request)))
        self._shells[name] = shell
        self._listen_to(shell)

    def _type(self, shell: _Shell, offset: int, data: bytes) -> None:
        """Accept input that begins at `offset`. What has been typed before is not typed again."""
        if offset > shell.typed:
            raise BadRequest("input_gap", f"{shell.typed} bytes were typed before, not {offset}.")
        data = data[shell.typed - offset :]
        if len(shell.unwritten) + len(data) > MAX_INPUT_BYTES:
            raise BadRequest("busy", "The shell does not read its input. Try again.")
        shell.unwritten += data
        shell.typed += len(data)
        self._write(shell)

    # Terminals

    def _listen_to(self, shell: _Shell) -> None:
        """Wait until the terminal takes input, or has output that its follower is ready for."""
        if not shell.is_open:
            return
        follower = next((it for it in self._connections if it.followed is shell), None)
        behind = shell.size - (shell.read_to if follower is None else follower.offset)
        events = 0
        if behind < _UNSENT_LIMIT and not shell.is_at_end:
            events |= selectors.EVENT_READ
        if shell.unwritten:
            events |= selectors.EVENT_WRITE
        master = shell.terminal.master
        is_known = master in self._selector.get_map()
        if not events and is_known:
            self._selector.unregister(master)
        elif events and is_known:
            self._selector.modify(master, events, self._selector.get_key(master).data)
        elif events:
            self._selector.register(master, events, lambda mask: self._on_terminal(shell, mask))

    def _on_terminal(self, shell: _Shell, mask: int) -> None:
        if not shell.is_open:
            return  # closed since it was ready
        if mask & selectors.EVENT_WRITE:
            self._write(shell)
        if mask & selectors.EVENT_READ:
            self._read(shell, _READ_BYTES)
        self._listen_to(shell)

    def _read(self, shell: _Shell, limit: int) -> int:
        """Read the terminal's output, pass it on to the follower, and return its size."""
        try:
            data = os.read(shell.terminal.master, limit)
        except BlockingIOError:
            return 0
        except OSError:  # EIO: no process has the terminal any more
            data = b""
        if data:
            shell.append(data)
            self._pass_on(shell)
        else:
            shell.is_at_end = True
        return len(data)

    def _write(self, shell: _Shell) -> None:
        if not shell.is_open:
            return
        try:
            written = os.write(shell.terminal.master, shell.unwritten)
        except BlockingIOError:
            written = 0
        except OSError:
            written = len(shell.unwritten)
        del shell.unwritten[:written]
        self._listen_to(shell)

    def _pass_on(self, shell: _Shell) -> None:
        for connection in [it for it in self._connections if it.followed is shell]:
            self._on_ready(connection, selectors.EVENT_WRITE)

    def _hang_up(self, shell: _Shell, reason: str) -> None:
        """End a shell. Closing the terminal sends SIGHUP to what runs in its foreground."""
        if not shell.is_open:
            return
        shell.reason = reason
        send_group(shell.terminal.pid, signal.SIGKILL)
        self._close_terminal(shell)

    def _close_terminal(self, shell: _Shell) -> None:
        if not shell.is_open:
            return
        shell.is_open = False
        with suppress(KeyError):
            self._selector.unregister(shell.terminal.master)
        os.close(shell.terminal.master)
        self._pass_on(shell)


def _size_of(request: dict[str, Any]) -> tuple[int, int]:
    rows, columns = int(request["rows"]), int(request["columns"])
    if not (0 < rows <= _LARGEST_SIZE and 0 < columns <= _LARGEST_SIZE):
        raise BadRequest("invalid", f"A terminal has 1 to {_LARGEST_SIZE} rows and columns.")
    return rows, columns


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise BadRequest("invalid", "The input is not base64.") from error
