"""An ASGI application in front of the portal's: the host names of dashboards.

What answers there is code of users. So nothing of the portal is served at these host names, and no
header of the portal's reaches that code: browsers send its cookies to the portal's host alone, and
the key of the session is removed.
"""

import html
import re
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import parse_qs

import structlog
from asgiref.sync import sync_to_async
from asgiref.typing import ASGI3Application
from django.db import Error as DatabaseProblem

from portal.api.dashboards.proxy import Unreachable, pass_on
from portal.core.metrics import HTTP_REQUESTS
from portal.core.streams import release_connection
from portal.workloads.services.dashboards import OPEN_PATH, authorized_door, redeem_ticket
from slipway.schemas.hosts import Authority, parse_authority

log = structlog.get_logger(__name__)
Result = TypeVar("Result")
COOKIE: Final = "slipway_dashboard"
_LABEL: Final = re.compile(r"[0-9a-f]{32}")
_SAFE: Final = frozenset({"GET", "HEAD"})
_METHODS: Final = _SAFE | {"POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
_VALID_FOR_S: Final = 10.0
_MOST_CACHED: Final = 1000
_MOST_KEYS: Final = 8
_LONGEST_TICKET: Final = 200
_PAGE: Final = (
    "<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title>{more}"
    "<h1>{title}</h1><p>{text}</p>"
)
_REFRESH: Final = '<meta http-equiv="refresh" content="2">'


class _Refused(Exception):
    """A request that is not passed on, with the page that says why."""

    def __init__(self, status: int, title: str, text: str) -> None:
        super().__init__(text)
        self.status, self.title = status, title


class DashboardApplication:
    """Handles requests to names below the host of dashboards, and leaves the rest to the portal."""

    def __init__(self, app: ASGI3Application, domains: list[Authority], url: str) -> None:
        """`domains` are the host of dashboards with its ports, none where there are none."""
        self.app = app
        self._domains = domains
        self._scheme = url.partition(":")[0]
        self._doors: dict[tuple[str, tuple[str, ...]], tuple[float, Path]] = {}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle one request, whose Host header has been checked."""
        label = self._label_of(scope) if scope["type"] == "http" else None
        if label is None:
            await self.app(scope, receive, send)
            return
        status = 500

        async def counted(event: Any) -> None:
            nonlocal status
            if event["type"] == "http.response.start":
                status = event["status"]
            await send(event)

        try:
            await self._handle(label, scope, receive, counted)
        except _Refused as refusal:
            await _page(counted, refusal.status, refusal.title, str(refusal))
        except Unreachable as error:
            await _page(counted, 503, "The dashboard cannot be reached", str(error), _REFRESH)
        except DatabaseProblem as error:
            log.warning("dashboard_database", reason=str(error)[:300])
            await _page(counted, 503, "Slipway is busy", "Reload this page.", _REFRESH)
        HTTP_REQUESTS.labels(scope["method"], "dashboard", status).inc()

    def _label_of(self, scope: Any) -> str | None:
        """Return the first part of a host name below that of dashboards, or None."""
        try:
            host, port = parse_authority(_header(scope, b"host"))
        except ValueError:
            return None
        for domain, own in self._domains:
            if port == own and host.endswith(f".{domain}"):
                return host.removesuffix(f".{domain}")
        return None

    async def _handle(self, label: str, scope: Any, receive: Any, send: Any) -> None:
        if _LABEL.fullmatch(label) is None or scope["method"] not in _METHODS:
            raise _Refused(404, "Not found", "There is nothing at this address.")
        if scope["path"] == OPEN_PATH:
            await self._open(label, scope, send)
            return
        _check_origin(scope)
        keys = tuple(_keys(scope))
        door = await self._door(label, keys)
        await pass_on(scope, receive, send, door=door)

    async def _open(self, label: str, scope: Any, send: Any) -> None:
        """Exchange the ticket in the address for a cookie of this host name."""
        query = parse_qs(scope["query_string"].decode("latin1"), max_num_fields=10)
        ticket = query.get("ticket", [""])[0][:_LONGEST_TICKET]
        key = None
        if scope["method"] == "GET":
            key = await _in_thread(partial(redeem_ticket, label=label, ticket=ticket))
        if key is None:
            raise _Refused(
                403,
                "This link does not open the dashboard",
                "It was used before, or its minute is over. Open the dashboard from the page of "
                "the job.",
            )
        secure = "; Secure" if self._scheme == "https" else ""
        cookie = f"{COOKIE}={key}; Path=/; HttpOnly; SameSite=Lax{secure}"
        headers = [
            (b"location", b"/"),
            (b"set-cookie", cookie.encode()),
            (b"cache-control", b"no-store"),
            (b"referrer-policy", b"no-referrer"),
            (b"content-length", b"0"),
        ]
        await send({"type": "http.response.start", "status": 303, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    async def _door(self, label: str, keys: tuple[str, ...]) -> Path:
        """Return the socket that leads to the dashboard. Raises _Refused."""
        now = time.monotonic()
        cached = self._doors.get((label, keys))
        if cached is not None and cached[0] > now:
            return cached[1]
        self._doors.pop((label, keys), None)
        door = None
        if keys:
            door = await _in_thread(partial(authorized_door, label=label, keys=list(keys)))
        if door is None:
            raise _Refused(
                403,
                "This dashboard is not open in this browser",
                "Its work has ended, you signed out, or nobody used it for a while. Open it from "
                "the page of the job.",
            )
        if len(self._doors) >= _MOST_CACHED:
            self._doors.clear()
        self._doors[label, keys] = (now + _VALID_FOR_S, door)
        return door


async def _in_thread(work: Callable[[], Result]) -> Result:
    """Run database work in the thread for it."""

    def run() -> Result:
        try:
            return work()
        finally:
            release_connection()

    return await sync_to_async(run)()


def _header(scope: Any, name: bytes) -> str:
    values = [value.decode("latin1") for key, value in scope["headers"] if key == name]
    return values[0] if len(values) == 1 else ""


def _check_origin(scope: Any) -> None:
    """Raise _Refused for requests that pages of other origins make with the cookie.

    Ray's API starts work without looking at the origin, so other dashboards could use this one.
    """
    origin, site = _header(scope, b"origin"), _header(scope, b"sec-fetch-site")
    is_navigation = _header(scope, b"sec-fetch-mode") == "navigate" and scope["method"] in _SAFE
    host = _header(scope, b"host")
    is_foreign = site not in ("", "same-origin", "none") and not is_navigation
    if origin and origin.partition("://")[2] != host and not is_navigation:
        is_foreign = True
    if scope["method"] not in _SAFE and not origin and not site:
        # Browsers always send one of them. Whatever else has the cookie has stolen it.
        is_foreign = True
    if is_foreign:
        raise _Refused(403, "Refused", "This request was made by a page of another origin.")


def _keys(scope: Any) -> list[str]:
    """Return the keys in the cookies. Another host of the domain may have set more of them."""
    keys = []
    for name, value in scope["headers"]:
        if name != b"cookie":
            continue
        for part in value.decode("latin1").split(";"):
            key, _, text = part.strip().partition("=")
            if key == COOKIE and text:
                keys.append(text[:_LONGEST_TICKET])
    return keys[:_MOST_KEYS]


async def _page(send: Any, status: int, title: str, text: str, more: str = "") -> None:
    body = _PAGE.format(title=html.escape(title), text=html.escape(text), more=more).encode()
    headers = [
        (b"content-type", b"text/html; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
