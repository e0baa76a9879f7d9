"""Host check of the Hub: only the notebooks' addresses and its own local port are allowed."""

from dataclasses import dataclass
from typing import Any, Final

from tornado import web
from tornado.httputil import HTTPServerRequest

from slipway.schemas.hosts import AllowedHosts, HostRefused


@dataclass(frozen=True)
class Route:
    """A path and its access policy."""

    path: str
    policy: str


# Routes of our own. All others are JupyterHub's.
ROUTES: Final = (Route(".*", "nobody: refuses requests to other hosts"),)


class WrongHostHandler(web.RequestHandler):
    """Answers requests to other addresses."""

    def initialize(self, refusal: HostRefused) -> None:
        """Accept the response to send."""
        self._refusal = refusal

    def check_xsrf_cookie(self) -> None:
        """Skip the check: the handler changes nothing."""

    def prepare(self) -> None:
        """Reject the request, whatever the method."""
        self.set_status(self._refusal.status, self._refusal.code)
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(f"{self._refusal.detail}\n")


def refuse_other_hosts(application: Any, allowed: AllowedHosts) -> None:
    """Make an application refuse requests without an allowed host or a path (400 or 421)."""
    find_handler = application.find_handler

    def find_allowed(request: HTTPServerRequest, **options: Any) -> Any:
        try:
            allowed.accept(request.headers.get_list("Host"))
            if not (request.uri or "").startswith("/"):
                # An absolute-form target may name another host.
                raise HostRefused(400, "malformed_request", "The request target is not a path.")
        except HostRefused as refusal:
            return application.get_handler_delegate(request, WrongHostHandler, {"refusal": refusal})
        return find_handler(request, **options)

    application.find_handler = find_allowed
