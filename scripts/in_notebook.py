"""Run a notebook in a notebook server through Jupyter's own API, as an editor does."""

import json
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
from websockets.sync.client import ClientConnection, connect

_TIMEOUT_S: Final = 120.0


class CellError(Exception):
    """Raised with the error of a cell that failed."""


@dataclass(frozen=True)
class Lab:
    """A notebook server: the URL of its API, and an access token."""

    url: str
    token: str

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers that authenticate a request."""
        return {"Authorization": f"token {self.token}"}

    def request(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """Send one request to Jupyter's API. Raises httpx.HTTPError."""
        response = httpx.request(
            method, f"{self.url}api/{path}", headers=self.headers, json=body, timeout=_TIMEOUT_S
        )
        response.raise_for_status()
        return response.json() if response.content else None

    def run(self, file: Path) -> str:
        """Run the cells of a notebook in order and return what they printed.

        Saves the notebook in the workspace with its outputs, under its own name. Raises CellError.
        """
        notebook: dict[str, Any] = json.loads(file.read_text("utf-8"))
        kernel = {"name": "python3"}
        session = {"path": file.name, "name": file.name, "type": "notebook", "kernel": kernel}
        kernel_id = str(self.request("POST", "sessions", session)["kernel"]["id"])
        url = f"{self.url.replace('http', 'ws', 1)}api/kernels/{kernel_id}/channels"
        printed = ""
        code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        with connect(url, additional_headers=self.headers, proxy=None) as channel:
            for number, cell in enumerate(code, start=1):
                output = run_cell(channel, "".join(cell["source"]))
                stream = {"output_type": "stream", "name": "stdout", "text": output}
                cell |= {"execution_count": number, "outputs": [stream] if output else []}
                printed += output
        self.request("PUT", f"contents/{file.name}", {"type": "notebook", "content": notebook})
        return printed


def run_cell(channel: ClientConnection, source: str) -> str:
    """Run one cell and return what it printed. Raises CellError."""
    message_id = secrets.token_hex(8)
    header = {
        "msg_id": message_id,
        "msg_type": "execute_request",
        "session": message_id,
        "version": "5.3",
    }
    content = {"code": source, "silent": False, "store_history": True, "allow_stdin": False}
    message = {"header": header | {"username": ""}, "parent_header": {}, "metadata": {}}
    channel.send(json.dumps(message | {"content": content, "channel": "shell", "buffers": []}))
    printed = ""
    while True:
        reply = json.loads(channel.recv(timeout=_TIMEOUT_S))
        if reply.get("parent_header", {}).get("msg_id") != message_id:
            continue
        kind, reply_content = reply["msg_type"], reply["content"]
        if kind == "stream" and reply_content["name"] == "stdout":
            printed += str(reply_content["text"])
        elif kind == "error":
            raise CellError(f"{reply_content['ename']}: {reply_content['evalue']}")
        elif kind == "status" and reply_content["execution_state"] == "idle":
            return printed
