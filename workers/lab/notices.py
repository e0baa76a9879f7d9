"""What JupyterLab's page asks its own server: whether it is about to stop, and to keep it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from jupyter_server.base.handlers import APIHandler
from tornado import web

from workers.lab.reports import Reporter

# The page's half of it, which JupyterLab loads from here.
PAGE_EXTENSIONS: Final = Path(__file__).parent / "labextensions"


class NoticeError(web.HTTPError):
    """An error that Jupyter answers with this status and these words."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(status, message)


class StopHandler(APIHandler):
    """`GET` tells when the server stops and why; `POST` keeps it, where that is in its hands."""

    def initialize(self, reporter: Reporter) -> None:
        """Take who talks with the portal."""
        self._reporter = reporter

    @web.authenticated
    async def get(self) -> None:
        """Answer what the portal has said last."""
        self._answer()

    @web.authenticated
    async def post(self) -> None:
        """Tell the portal that somebody wants the server; what it says to that is the answer."""
        await self._reporter.keep()
        self._answer()

    def _answer(self) -> None:
        self.finish(json.dumps(self._reporter.stop_told()))


@dataclass(frozen=True)
class Route:
    """What this answers below the server's address, and who may ask for it."""

    path: str
    policy: str


# JupyterLab's own routes are guarded by Jupyter and the Hub: see `notebooks_service.hub`.
ROUTES: Final = (Route("slipway/stop", "whoever the Hub lets into the server"),)


def add_notices(serverapp: Any, reporter: Reporter) -> None:
    """Put the handler below the server's address."""
    where = f"{serverapp.base_url}{ROUTES[0].path}"
    serverapp.web_app.add_handlers(".*$", [(where, StopHandler, {"reporter": reporter})])
