"""Routes for JupyterLab's page: whether the server is about to stop, and a request to keep it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from jupyter_server.base.handlers import APIHandler
from tornado import web

from workers.lab.reports import Reporter

# The part that runs in the page, which JupyterLab loads from this folder.
PAGE_EXTENSIONS: Final = Path(__file__).parent / "labextensions"


class NoticeError(web.HTTPError):
    """An error that Jupyter answers with this status and these words."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(status, message)


class StopHandler(APIHandler):
    """`GET` returns when and why the server stops. `POST` asks the portal to keep it running."""

    def initialize(self, reporter: Reporter) -> None:
        """Store the reporter, which talks to the portal."""
        self._reporter = reporter

    @web.authenticated
    async def get(self) -> None:
        """Return the portal's last stop notice."""
        self._answer()

    @web.authenticated
    async def post(self) -> None:
        """Report to the portal that a user wants the server, and return its response."""
        await self._reporter.keep_alive()
        self._answer()

    def _answer(self) -> None:
        self.finish(json.dumps(self._reporter.stop_notice()))


@dataclass(frozen=True)
class Route:
    """A path below the server's address, and the policy of who may request it."""

    path: str
    policy: str


# JupyterLab's own routes are guarded by Jupyter and the Hub: see `notebooks_service.hub`.
ROUTES: Final = (Route("slipway/stop", "users that the Hub admits to the server"),)


def add_notices(serverapp: Any, reporter: Reporter) -> None:
    """Register the handler below the server's address."""
    where = f"{serverapp.base_url}{ROUTES[0].path}"
    serverapp.web_app.add_handlers(".*$", [(where, StopHandler, {"reporter": reporter})])
