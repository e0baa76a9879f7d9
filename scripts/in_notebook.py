"""Runs a notebook in a server of somebody's through Jupyter's own API, as an editor would do."""

import json
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
from websockets.sync.client import ClientConnection, connect

_PATIENCE_S: Final = 120.0


class CellError(Exception):
    """A cell failed; the message is its error."""


@dataclass(frozen=True)
class Lab:
    """A notebook server: where its API answers, and the token that it takes."""

    url: str
    token: str

    @property
    def headers(self) -> dict[str, str]:
        """How a program says who it is."""
        return {"Authorization": f"token {self.token}"}

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """Send one request to Jupyter's API; raises httpx.HTTPError."""
        answer = httpx.request(
            method, f"{self.url}api/{path}", headers=self.headers, json=body, timeout=_PATIENCE_S
        )
        answer.raise_for_status()
        return answer.json() if answer.content else None

    def run(self, file: Path) -> str:
        """Run a notebook's cells in the order they stand; returns what they printed.

        It is saved in the workspace with its results, under its own name. Raises CellError.
        """
        notebook: dict[str, Any] = json.loads(file.read_text("utf-8"))
        kernel = {"name": "python3"}
        session = {"path": file.name, "name": file.name, "type": "notebook", "kernel": kernel}
        started = str(self.ask("POST", "sessions", session)["kernel"]["id"])
        address = f"{self.url.replace('http', 'ws', 1)}api/kernels/{started}/channels"
        printed = ""
        code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        with connect(address, additional_headers=self.headers, proxy=None) as channel:
            for number, cell in enumerate(code, start=1):
                said = run_cell(channel, "".join(cell["source"]))
                stream = {"output_type": "stream", "name": "stdout", "text": said}
                cell |= {"execution_count": number, "outputs": [stream] if said else []}
                printed += said
        self.ask("PUT", f"contents/{file.name}", {"type": "notebook", "content": notebook})
        return printed


def run_cell(channel: ClientConnection, source: str) -> str:
    """Run one cell; returns what it printed. Raises CellError."""
    asked = secrets.token_hex(8)
    header = {"msg_id": asked, "msg_type": "execute_request", "session": asked, "version": "5.3"}
    content = {"code": source, "silent": False, "store_history": True, "allow_stdin": False}
    message = {"header": header | {"username": ""}, "parent_header": {}, "metadata": {}}
    channel.send(json.dumps(message | {"content": content, "channel": "shell", "buffers": []}))
    printed = ""
    while True:
        heard = json.loads(channel.recv(timeout=_PATIENCE_S))
        if heard.get("parent_header", {}).get("msg_id") != asked:
            continue
        kind, said = heard["msg_type"], heard["content"]
        if kind == "stream" and said["name"] == "stdout":
            printed += str(said["text"])
        elif kind == "error":
            raise CellError(f"{said['ename']}: {said['evalue']}")
        elif kind == "status" and said["execution_state"] == "idle":
            return printed
