"""The step of the notebook: launched from the portal, opened, run, saved, stopped."""

import time
from typing import Final

import httpx
from websockets.exceptions import WebSocketException

from scripts.in_notebook import CellError, Lab
from scripts.loop.data import EXAMPLE, PROJECT
from scripts.loop.people import DemoUser
from scripts.loop.steps import DemoError, show, wait_for
from slipway import Client
from slipway.schemas.money import dollars
from slipway.schemas.notebook_servers import NotebookState, ServerOut

NOTEBOOK: Final = "neighbours"
_READY_WITHIN_S: Final = 400.0
_OVER: Final = (NotebookState.STOPPED, NotebookState.FAILED)
_ALIVE: Final = (NotebookState.STARTING, NotebookState.OPENING, NotebookState.READY)


def work_in_notebook(person: DemoUser) -> None:
    """Launch a server, open it, run the example in it, and stop it."""
    client, began = person.client, time.monotonic()
    server = _launch(person)
    try:
        _wait(client, server, NotebookState.READY, within_s=_READY_WITHIN_S)
        show("notebook", client.notebooks.page(server, project=PROJECT))
        show("ready", f"{time.monotonic() - began:.2f} s after it was launched")
        opened = person.browser.open(f"/p/{PROJECT}/notebooks/servers/{server}/open")
        show("opened", f"{opened.url}, signed in by the portal")
        key = client.notebooks.key(server, project=PROJECT)
        began = time.monotonic()
        said = Lab(key.url, key.token).run(EXAMPLE / f"{NOTEBOOK}.ipynb")
        show("result", said.strip().splitlines()[-1])
        show("ran for", f"{time.monotonic() - began:.1f} s")
        show("version", wait_for(lambda: _saved(client), "its version", within_s=200.0))
    except (CellError, httpx.HTTPError, WebSocketException) as error:
        raise DemoError(f"the notebook did not run: {error}") from error
    finally:
        client.notebooks.stop(server, project=PROJECT)
    stopped = _wait(client, server, NotebookState.STOPPED, within_s=200.0)
    show("cost", f"{dollars(stopped.cost_nano_usd)} since it was first launched")


def _launch(person: DemoUser) -> str:
    """Send the form of the portal, or press Start on the page of an earlier demo's server."""
    servers = f"/p/{PROJECT}/notebooks/servers"
    for server in person.client.notebooks.list(project=PROJECT, mine=True):
        if server.name == NOTEBOOK:
            if server.state not in _ALIVE:
                _wait(person.client, server.id, *_OVER, within_s=200.0)
                person.browser.press(f"{servers}/{server.id}", f"{servers}/{server.id}/start")
            return server.id
    form = f"/p/{PROJECT}/notebooks/new"
    answer = person.browser.send(form, name=NOTEBOOK, idle_minutes="10")
    launched = answer.url.path.rpartition("/")[2]
    if not launched.startswith("nbs_"):
        raise DemoError(f"the form did not launch a notebook: {answer.url}")
    return launched


def _wait(client: Client, server: str, *states: NotebookState, within_s: float) -> ServerOut:
    def look() -> ServerOut | None:
        found = client.notebooks.get(server, project=PROJECT)
        if found.state is NotebookState.FAILED and found.state not in states:
            raise DemoError(f"the notebook failed: {found.explanation}")
        return found if found.state in states else None

    return wait_for(look, f"a notebook that is {states[0]}", within_s=within_s)


def _saved(client: Client) -> str | None:
    """Return where the version of the notebook is to be seen that holds its results."""
    for file in client.notebook_files.list(project=PROJECT, search=f"{NOTEBOOK}.ipynb"):
        if file.latest.outputs_digest:
            return f"{client.url}/p/{PROJECT}/notebooks/files/{file.id}"
    return None
