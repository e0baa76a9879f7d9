"""Shells in tasks, over the sockets that agents would connect to."""

import base64
import json
import re
import socket
from pathlib import Path
from typing import Any

from slipway.schemas.agent import TaskKey
from tests.workers.fake_portal import Key
from tests.workers.machines import Site
from workers.node_agent.folders import NodeFolders, handle_of


class Shell:
    """A shell in a task, over the socket that its agent would connect to."""

    def __init__(self, path: Path, *, rank: int = 0, name: str = "shl_1", opens: bool = True):
        self.path = path
        self.name = name
        self.text = ""
        self.typed = 0
        self.end: dict[str, Any] | None = None
        if opens:
            self.opened = self.ask("open", rank=rank, rows=24, columns=80)
        self.follow()

    def follow(self, offset: int = 0) -> None:
        self.stream = connect(self.path)
        request = {"op": "follow", "shell": self.name, "offset": offset}
        self.stream.sendall(json.dumps(request).encode() + b"\n")
        self.lines = self.stream.makefile("rb")

    def ask(self, op: str, **fields: Any) -> Any:
        with connect(self.path) as connection:
            request = {"op": op, "shell": self.name, **fields}
            connection.sendall(json.dumps(request).encode() + b"\n")
            return json.loads(connection.makefile("rb").readline())

    def type(self, text: str) -> Any:
        data = text.encode()
        answer = self.ask("input", offset=self.typed, data=base64.b64encode(data).decode())
        self.typed += len(data)
        return answer

    def run(self, command: str) -> str:
        """Type a command, and return its output."""
        self.type(f'{command}; printf \'%s\\n\' "<e""nd>"\n')
        return self.until(r"<end>\r\n")

    def until(self, pattern: str) -> str:
        """Read until the pattern appears, and return what came before it."""
        while (match := re.search(pattern, self.text)) is None:
            assert self._read(), f"{pattern!r} did not come: {self.text!r} {self.end}"
        before, self.text = self.text[: match.start()], self.text[match.end() :]
        return before

    def to_end(self) -> dict[str, Any]:
        while self._read():
            pass
        assert self.end is not None, self.text
        return self.end

    def _read(self) -> bool:
        line = json.loads(self.lines.readline() or b"{}")
        self.end = line.get("end", self.end)
        self.text += base64.b64decode(line.get("output", "")).decode(errors="replace")
        return "output" in line


def connect(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(30)
    connection.connect(str(path))
    return connection


def shell_path(site: Site, key: Key) -> Path:
    handle = handle_of(TaskKey(task_id=key[0], epoch=key[1]))
    return NodeFolders(site.machine.data_dir).shell(handle)
