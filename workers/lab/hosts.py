"""Allowed Host values of a notebook server: the notebooks' address, and that of its own socket.

Every program of the machine can reach its port, and so can a browser after DNS rebinding. Written
without Slipway's SDK, because a task's environment may have another version of it.
"""

from typing import Any, Final
from urllib.parse import urlsplit

from tornado import web
from tornado.httputil import HTTPServerRequest

from workers.lab.notices import Route

# Paths that are answered here. All other routes are those of the application.
ROUTES: Final = (Route(".*", "nobody: refuses requests to other hosts"),)
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


def hosts_of(public_url: str, *own: str) -> frozenset[str]:
    """Return what Host headers say of requests to `public_url` and to `own` as `host:port`."""
    parts = urlsplit(public_url)
    items = {parts.netloc.lower(), *(name.lower() for name in own)} - {""}
    default = _DEFAULT_PORTS.get(parts.scheme)
    if parts.hostname and parts.port in (None, default):
        name = parts.netloc.lower().removesuffix(f":{default}")
        items |= {name, f"{name}:{default}"}
    return frozenset(items)


class WrongHostHandler(web.RequestHandler):
    """Answers requests to other addresses."""

    def check_xsrf_cookie(self) -> None:
        """Nothing is done here that would need a token."""

    def prepare(self) -> None:
        """Refuse, whatever the method."""
        self.set_status(421, "Misdirected Request")
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish("This notebook server is reached at the address that Slipway shows.\n")


def refuse_other_hosts(application: Any, allowed: frozenset[str]) -> None:
    """Make an application answer 421 to requests for any other host."""
    find_handler = application.find_handler

    def find_allowed(request: HTTPServerRequest, **options: Any) -> Any:
        hosts = request.headers.get_list("Host")
        if len(hosts) == 1 and _canonical(hosts[0]) in allowed:
            return find_handler(request, **options)
        return application.get_handler_delegate(request, WrongHostHandler)

    application.find_handler = find_allowed


def _canonical(host: str) -> str:
    """Return a Host header in lower case, without the dot at the end of its name."""
    name, colon, port = host.lower().rpartition(":")
    if not colon or not port.isdigit():
        return host.lower().removesuffix(".")
    return f"{name.removesuffix('.')}:{port}"
