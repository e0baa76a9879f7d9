"""Demo step: launch a notebook server from the portal, open it, run a notebook, stop it."""

import time
from typing import Final

import httpx
from websockets.exceptions import WebSocketException

from scripts.in_notebook import CellError, Lab
from scripts.loop.data import EXAMPLE, PROJECT
from scripts.loop.steps import DemoError, ReasonReporter, show, wait_for
from scripts.loop.users import DemoUser
from slipway import Client
from slipway.schemas.money import dollars
from slipway.schemas.notebook_servers import NotebookState, ServerOut

NOTEBOOK: Final = "neighbours"
_READY_WITHIN_S: Final = 400.0
_OVER: Final = (NotebookState.STOPPED, NotebookState.FAILED)
_ALIVE: Final = (NotebookState.STARTING, NotebookState.OPENING, NotebookState.READY)


def work_in_notebook(user: DemoUser) -> None:
    """Launch a server, open it, run the example notebook, and stop it."""
    client, started = user.client, time.monotonic()
    server = _launch(user)
    try:
        wait_until(client, server, NotebookState.READY, within_s=_READY_WITHIN_S)
        show("notebook", client.notebooks.page(server, project=PROJECT))
        show("ready", f"{time.monotonic() - started:.2f} s after the launch")
        opened = user.browser.open(f"/p/{PROJECT}/notebooks/servers/{server}/open")
        show("opened", f"{opened.url}, signed in by the portal")
        access = client.notebooks.key(server, project=PROJECT)
        started = time.monotonic()
        output = Lab(access.url, access.token).run(EXAMPLE / f"{NOTEBOOK}.ipynb")
        show("result", output.strip().splitlines()[-1])
        show("ran for", f"{time.monotonic() - started:.1f} s")
        show(
            "version",
            wait_for(lambda: _saved_version_url(client), "the notebook version", within_s=200.0),
        )
    except (CellError, httpx.HTTPError, WebSocketException) as error:
        raise DemoError(f"the notebook did not run: {error}") from error
    finally:
        client.notebooks.stop(server, project=PROJECT)
    stopped = wait_until(client, server, NotebookState.STOPPED, within_s=200.0)
    show("cost", f"{dollars(stopped.cost_nano_usd)} since the first launch")


def _launch(user: DemoUser) -> str:
    """Submit the launch form of the portal, or restart the server of an earlier demo."""
    servers = f"/p/{PROJECT}/notebooks/servers"
    for server in user.client.notebooks.list(project=PROJECT, mine=True):
        if server.name == NOTEBOOK:
            if server.state not in _ALIVE:
                wait_until(user.client, server.id, *_OVER, within_s=200.0)
                user.browser.press(f"{servers}/{server.id}", f"{servers}/{server.id}/start")
            return server.id
    form = f"/p/{PROJECT}/notebooks/new"
    response = user.browser.send(form, name=NOTEBOOK, idle_minutes="10")
    launched = response.url.path.rpartition("/")[2]
    if not launched.startswith("nbs_"):
        raise DemoError(f"the form did not launch a notebook server: {response.url}")
    return launched


def wait_until(client: Client, server: str, *states: NotebookState, within_s: float) -> ServerOut:
    """Wait until the server is in one of `states`, and print the reason each time it changes."""
    reasons = ReasonReporter()

    def reached() -> ServerOut | None:
        current = client.notebooks.get(server, project=PROJECT)
        if current.state not in states:
            reasons.report(current.explanation)
        if current.state is NotebookState.FAILED and current.state not in states:
            raise DemoError(f"the notebook failed: {current.explanation}")
        return current if current.state in states else None

    return wait_for(reached, f"the notebook server to be {states[0]}", within_s=within_s)


def _saved_version_url(client: Client) -> str | None:
    """Return the URL of the notebook's page once a version with outputs is saved."""
    for file in client.notebook_files.list(project=PROJECT, search=f"{NOTEBOOK}.ipynb"):
        if file.latest.outputs_digest:
            return f"{client.url}/p/{PROJECT}/notebooks/files/{file.id}"
    return None
