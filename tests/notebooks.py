"""Notebooks on a live Slipway, as a person with a browser uses them, without the browser."""

import json
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from tests.portals import PEOPLE, RunningPortal, running_slipway
from tests.processes import Program, wait_for

# That of `tests.personas`, which cannot be imported without Django.
PASSWORD = "correct-horse-battery"
SERVERS = "/projects/vision/notebooks/servers"
COLLEAGUES = ("alice", "bob", "dora", "emil", "fay")
NEWCOMER = "gina"
# No test starts a server for this person, in whatever order tests run.
SERVERLESS = "hugo"
_DESK = {
    "name": "Desk",
    "slug": "desk",
    "resources": {"cpu_millis": 200, "memory_bytes": 512 * 2**20},
    "nano_usd_per_hour": 900_000_000,
}
_FORM_TOKEN = re.compile(r'name="csrfmiddlewaretoken" value="([^"]+)"')


@contextmanager
def running_notebooks(
    folder: Path, *, node: Callable[[RunningPortal], Program] | None = None, **environ: str
) -> Iterator[RunningPortal]:
    """Yield all of Slipway with the Hub and its proxy, and a project in which COLLEAGUES work.

    Alice owns it, the others and NEWCOMER contribute. The tier `desk` lets COLLEAGUES work at once.
    """
    environ = {"SLIPWAY_EMBEDDED_NOTEBOOKS": "true"} | environ
    people = tuple(dict.fromkeys((*PEOPLE, *COLLEAGUES, NEWCOMER, SERVERLESS)))
    with running_slipway(folder, people, node=node, **environ) as running:
        owner, *others = COLLEAGUES
        with running.client(owner) as alice, running.client("root") as root:
            alice.post("/projects", json={"name": "Vision"}).raise_for_status()
            root.post("/tiers", json=_DESK).raise_for_status()
            for name in (*others, NEWCOMER, SERVERLESS):
                invite = {"email": f"{name}@example.org", "role": "contributor"}
                link = alice.post("/projects/vision/invitations", json=invite).json()["link"]
                token = {"token": link.rpartition("/")[2]}
                with running.client(name) as invited:
                    invited.post("/invitations/accept", json=token).raise_for_status()
        yield running


class Person:
    """Somebody signed in to the portal, in a browser that keeps cookies."""

    def __init__(
        self, running: RunningPortal, name: str, password: str, *, portal: str = ""
    ) -> None:
        at = running.installation
        self.portal = portal or f"http://localhost:{at.portal_port}"
        self.notebooks = f"http://127.0.0.2:{at.notebooks_port}"
        self.api = running.client(name)
        self.browser = httpx.Client(follow_redirects=True, timeout=60)
        form = self.browser.get(f"{self.portal}/account/login")
        match = _FORM_TOKEN.search(form.text)
        assert match is not None, form.text
        entered = self.browser.post(
            f"{self.portal}/account/login",
            data={
                "csrfmiddlewaretoken": match[1],
                "login": f"{name}@example.org",
                "password": password,
            },
            headers={"Referer": f"{self.portal}/account/login"},
        )
        assert entered.is_success, entered.text

    def launch(self, name: str = "desk", **changes: Any) -> str:
        """Launch a server of a name of its own; answers its id."""
        named = {"name": f"{name}-{secrets.token_hex(3)}"}
        made = self.api.post(SERVERS, json=named | changes)
        assert made.status_code == 201, made.text
        return str(made.json()["id"])

    def look(self, server: str) -> Any:
        """Answer how a server is shown; None while the portal is away."""
        try:
            response = self.api.get(f"{SERVERS}/{server}")
        except httpx.TransportError:
            return None
        return response.json() if response.is_success else None

    def wait_for(self, server: str, state: str, *, within_s: float = 90) -> Any:
        """Wait until a server stands so; answers how it is shown."""

        def look() -> Any:
            details = self.look(server)
            return details if details and details["state"] == state else None

        try:
            return wait_for(look, f"state {state}", within_s=within_s)
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.look(server)}") from None

    def ready(self, name: str = "desk", **changes: Any) -> str:
        """Launch a server and wait until it is ready; answers its id."""
        server = self.launch(name, **changes)
        self.wait_for(server, "ready")
        return server

    def stop(self, server: str) -> Any:
        """Stop a server and wait until it has; answers how it is shown."""
        self.api.post(f"{SERVERS}/{server}/stop").raise_for_status()
        return self.wait_for(server, "stopped")

    def start(self, server: str) -> None:
        """Start a server again and wait until it is ready."""
        self.api.post(f"{SERVERS}/{server}/start").raise_for_status()
        self.wait_for(server, "ready")

    def file(self, path: str) -> Any:
        """Answer how a notebook of the project is shown; None while there is none, or no portal."""
        try:
            response = self.api.get("/projects/vision/notebook-files", params={"q": path})
        except httpx.TransportError:
            return None
        items = response.json()["items"] if response.is_success else []
        return next((file for file in items if file["path"] == path), None)

    def says_of_saves(self, path: str, words: str) -> bool:
        """Whether the newest version of a notebook, by this person, holds `words`."""
        notebook = self.file(path)
        if notebook is None:
            return False
        latest = notebook["latest"]
        where = (
            f"/projects/vision/notebook-files/{notebook['id']}/versions/{latest['number']}/content"
        )
        return words in self.api.get(where).text

    def open(self, server: str) -> "OpenDesk":
        """Open a server as a click does, through every redirect of signing in."""
        url = str(self.look(server)["url"])
        page = self.browser.get(url)
        assert page.is_success, page.text
        return OpenDesk(self, url.removesuffix("/lab"), page)


class OpenDesk:
    """JupyterLab, open in the browser."""

    def __init__(self, person: Person, base: str, page: httpx.Response) -> None:
        self.person = person
        self.base = base
        self.page = page

    def call(self, method: str, path: str, *, below: str = "api", **options: Any) -> httpx.Response:
        """Send one request of the page's to its server."""
        cookies = self.person.browser.cookies
        own = f"{urlsplit(self.base).path}/"
        xsrf = [
            cookie.value for cookie in cookies.jar if cookie.name == "_xsrf" and cookie.path == own
        ]
        headers = {"X-XSRFToken": str(xsrf[-1])} if xsrf else {}
        return self.person.browser.request(
            method, f"{self.base}/{below}/{path}", headers=headers, **options
        )

    def kernel(self) -> str:
        """Start a kernel; answers its id."""
        made = self.call("POST", "kernels", json={"name": "python3"})
        assert made.status_code == 201, made.text
        return str(made.json()["id"])

    def connect(self, kernel: str) -> ClientConnection:
        """Open the websocket of a kernel."""
        return self._socket(f"/api/kernels/{kernel}/channels")

    def _socket(self, place: str) -> ClientConnection:
        host = urlsplit(self.base).netloc
        jar = self.person.browser.cookies.jar
        path = urlsplit(self.base).path
        cookies = "; ".join(
            f"{cookie.name}={cookie.value}"
            for cookie in jar
            if cookie.domain == host.partition(":")[0] and f"{path}/".startswith(cookie.path)
        )
        return connect(
            f"ws://{host}{path}{place}",
            additional_headers={"Cookie": cookies},
            origin=Origin(f"http://{host}"),
            proxy=None,
            open_timeout=20,
        )

    def type(self, line: str, *, within_s: float = 60) -> str:
        """Type a line into a terminal of its own; answers what stood there at its end."""
        made = self.call("POST", "terminals")
        assert made.is_success, made.text
        shown = ""
        with self._socket(f"/terminals/websocket/{made.json()['name']}") as channel:
            channel.send(json.dumps(["stdin", f"{line}; echo ended-$((40 + 2))\r"]))
            while "ended-42" not in shown:
                kind, *parts = json.loads(channel.recv(timeout=within_s))
                shown += parts[0] if kind == "stdout" else ""
        return shown

    def run(self, kernel: str, code: str, *, within_s: float = 60) -> str:
        """Run a cell; answers what it printed."""
        with self.connect(kernel) as channel:
            return run_cell(channel, code, within_s=within_s)


def request_of(code: str, message_id: str) -> str:
    """Return the message that asks a kernel to run a cell."""
    header = {
        "msg_id": message_id,
        "msg_type": "execute_request",
        "session": message_id,
        "version": "5.3",
    }
    header |= {"username": "", "date": "2026-01-01T00:00:00Z"}
    content = {"code": code, "silent": False, "store_history": True, "user_expressions": {}}
    content |= {"allow_stdin": False, "stop_on_error": True}
    message = {"header": header, "parent_header": {}, "metadata": {}, "content": content}
    return json.dumps(message | {"channel": "shell", "buffers": []})


def run_cell(channel: ClientConnection, code: str, *, within_s: float = 60) -> str:
    """Run a cell over an open websocket; answers what it printed, or how it failed."""
    message_id = secrets.token_hex(8)
    channel.send(request_of(code, message_id))
    printed = ""
    while True:
        message = json.loads(channel.recv(timeout=within_s))
        if message.get("parent_header", {}).get("msg_id") != message_id:
            continue
        kind, content = message["msg_type"], message["content"]
        if kind == "stream":
            printed += content["text"]
        elif kind == "execute_result":
            printed += content["data"].get("text/plain", "")
        elif kind == "error":
            return printed + "\n".join(content["traceback"])
        elif kind == "status" and content["execution_state"] == "idle":
            return printed


def notebook_of(*sources: str) -> dict[str, Any]:
    """Return the body that saves a notebook of these code cells through the contents API."""
    cells: list[dict[str, Any]] = [
        {
            "cell_type": "code",
            "id": f"cell-{number}",
            "metadata": {},
            "source": source,
            "outputs": [],
            "execution_count": None,
        }
        for number, source in enumerate(sources)
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    content: dict[str, Any] = {"cells": cells, "metadata": {"kernelspec": kernel}}
    content |= {"nbformat": 4, "nbformat_minor": 5}
    return {"type": "notebook", "format": "json", "content": content}
