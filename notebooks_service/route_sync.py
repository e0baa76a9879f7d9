"""Sync of the Hub's routes with the portal's list of servers, also after data loss.

The portal long-polls until something has changed, so a new server has its route at once.
Everything goes through the Hub's own REST API. Nothing here is stored: a Hub that has lost its
database receives the same list and soon has the same routes.
"""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import httpx

from notebooks_service.portal import Portal
from slipway.schemas.notebook_servers import HubServer, HubServers, NotebookState, hub_name
from workers.portal_client.client import PortalRefused, PortalUnreachable

log = logging.getLogger(__name__)
_AGAIN_S: Final = 1.0
_ROUTES_EVERY_S: Final = 2.0
_PATIENCE_S: Final = 60.0
# Time for opening a route, after which the proxy is checked as the cause.
_PROXY_EVERY_S: Final = 5.0
_NO_PROXY: Final = "the notebooks proxy does not respond to the Hub"
_OPEN: Final = (NotebookState.OPENING, NotebookState.READY)
_CONFLICT: Final = 409
# Description of a server with an open or pending route, from the Hub's REST API.
Opened = dict[str, Any]


class HubApi:
    """Client of the Hub's own REST API, used within its process."""

    def __init__(self, url: str, token: str) -> None:
        self._url = url
        self._http = httpx.AsyncClient()
        self._headers = {"Authorization": f"token {token}", "Content-Type": "application/json"}

    async def request(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """Return the body of the response, or raise httpx.HTTPError."""
        answer = await self._http.request(
            method,
            f"{self._url}{path}",
            headers=self._headers,
            content=None if method in ("GET", "DELETE") else json.dumps(body or {}),
            timeout=_PATIENCE_S,
        )
        answer.raise_for_status()
        return answer.json() if answer.content else None

    async def open_servers(self) -> dict[tuple[str, str], Opened]:
        """Return the servers that are running according to the Hub, by (user, server)."""
        users = await self.request("GET", "/users?state=active&limit=100000")
        return {
            (user["name"], name): server
            for user in users
            for name, server in (user.get("servers") or {}).items()
            if name and not server.get("stopped")
        }


@dataclass(frozen=True)
class ProxyCallbacks:
    """Callbacks for the Hub's proxy: restore its routes, and check that it responds."""

    check_routes: Callable[[], Awaitable[None]]
    check_proxy: Callable[[], Awaitable[None]]


class RouteFailed(Exception):
    """The Hub did not finish a route. The message has the details."""


class Follower:
    """Follows the portal until cancelled."""

    def __init__(self, portal: Portal, hub: HubApi, callbacks: ProxyCallbacks) -> None:
        self._portal = portal
        self._hub = hub
        self._callbacks = callbacks
        self._opening: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Poll and converge in a loop. Failures delay it by a second."""
        seen = -1
        while True:
            try:
                hub_servers = await self._portal.servers(seen=seen)
                if hub_servers is not None and await self._converge(hub_servers):
                    seen = hub_servers.version
                elif hub_servers is not None:
                    await asyncio.sleep(_AGAIN_S)
            except (PortalUnreachable, PortalRefused, httpx.HTTPError, ValueError) as error:
                log.warning("cannot sync with the portal: %s", error)
                await asyncio.sleep(_AGAIN_S)

    async def restore_routes(self) -> None:
        """Restore the proxy's routes after it was restarted."""
        while True:
            await asyncio.sleep(_ROUTES_EVERY_S)
            try:
                await self._callbacks.check_routes()
            except Exception as error:  # noqa: BLE001 - the proxy is away: try again
                log.debug("cannot check the proxy's routes: %s", error)

    async def _converge(self, hub_servers: HubServers) -> bool:
        """Open and close routes that differ, and return whether nothing is left to do."""
        requested = {
            (hub_server.user, hub_name(hub_server.id)): hub_server
            for hub_server in hub_servers.servers
            if hub_server.state in _OPEN
        }
        opened = await self._hub.open_servers()
        closed = [
            self._close(user, name)
            for (user, name), server in opened.items()
            if (user, name) not in requested and not server.get("pending")
        ]
        done = all(await asyncio.gather(*closed))
        for key, hub_server in requested.items():
            self._ensure_route(hub_server, opened.get(key))
        return done

    def _ensure_route(self, hub_server: HubServer, opened: Opened | None) -> None:
        """Open the route to a server in a separate task, so that no server waits for another."""
        if hub_server.state == NotebookState.READY and _is_open(hub_server, opened):
            return
        if hub_server.id not in self._opening:
            task = asyncio.create_task(self._open(hub_server, opened))
            self._opening[hub_server.id] = task
            task.add_done_callback(lambda _: self._opening.pop(hub_server.id, None))

    async def _open(self, hub_server: HubServer, opened: Opened | None) -> None:
        """Open the route to a server, retrying failures for as long as the server needs one."""
        requested: HubServer | None = hub_server
        while requested is not None:
            hub_server = requested
            try:
                if not _is_open(hub_server, opened):
                    await self._open_once(hub_server, opened)
                stands = await self._portal.routed(hub_server.id, hub_server.start)
                requested = (
                    stands if stands.start != hub_server.start and stands.state in _OPEN else None
                )
                opened = await self._open_route(hub_server) if requested is not None else None
            except PortalRefused as error:
                log.warning("the route to %s is no longer needed: %s", hub_server.id, error)
                return
            except (PortalUnreachable, RouteFailed, httpx.HTTPError) as error:
                log.warning("the route to %s could not be opened: %s", hub_server.id, error)
                requested, opened = await self._report_and_retry(hub_server, _describe_error(error))

    async def _report_and_retry(
        self, hub_server: HubServer, why: str
    ) -> tuple[HubServer | None, Opened | None]:
        """Report why, wait, poll again. Return the server if it needs a route, and the route."""
        while True:
            await asyncio.sleep(_AGAIN_S)
            requested = await self._still_needs_route(hub_server, why)
            if requested is None:
                return None, None
            try:
                return requested, await self._open_route(requested)
            except httpx.HTTPError as error:
                why = _describe_error(error)

    async def _open_route(self, hub_server: HubServer) -> Opened | None:
        return (await self._hub.open_servers()).get((hub_server.user, hub_name(hub_server.id)))

    async def _open_once(self, hub_server: HubServer, opened: Opened | None) -> None:
        user, name = quote(hub_server.user), quote(hub_name(hub_server.id))
        if opened is not None and not opened.get("pending"):
            await self._close(hub_server.user, hub_name(hub_server.id))
        await self._create_user(user)
        await self._hub.request("POST", f"/users/{user}/servers/{name}")
        await self._wait_until_ready(hub_server)

    async def _still_needs_route(self, hub_server: HubServer, why: str) -> HubServer | None:
        """Report the obstacle to the portal, and return the server if it still needs a route."""
        try:
            stands = await self._portal.report_trouble(hub_server.id, hub_server.start, why)
        except PortalUnreachable:
            return hub_server
        except PortalRefused:
            return None
        return stands if stands.state in _OPEN else None

    async def _wait_until_ready(self, hub_server: HubServer) -> None:
        looked_at = time.monotonic()
        while True:
            values = await self._open_route(hub_server)
            if values is not None and values.get("ready"):
                return
            if values is None or time.monotonic() - looked_at >= _PROXY_EVERY_S:
                await self._check_proxy(hub_server)
                looked_at = time.monotonic()
            if values is None:
                raise RouteFailed("the Hub could not open the route and is trying again")
            await asyncio.sleep(0.1)

    async def _check_proxy(self, hub_server: HubServer) -> None:
        """Report if the Hub waits for the proxy. Raise GaveUp if the route is unwanted."""
        try:
            await self._callbacks.check_proxy()
        except httpx.HTTPError as error:
            log.warning("the proxy does not respond: %s", _describe_error(error))
            if await self._still_needs_route(hub_server, _NO_PROXY) is None:
                raise RouteFailed(_NO_PROXY) from error

    async def _create_user(self, user: str) -> None:
        try:
            await self._hub.request("POST", f"/users/{user}")
        except httpx.HTTPStatusError as error:
            if error.response.status_code != _CONFLICT:
                raise

    async def _close(self, user: str, name: str) -> bool:
        path = f"/users/{quote(user)}/servers/{quote(name)}"
        try:
            await self._hub.request("DELETE", path)
        except httpx.HTTPError as error:
            log.warning("the route to %s could not be closed: %s", name, error)
            return False
        return True


def _is_open(hub_server: HubServer, opened: Opened | None) -> bool:
    """Return whether the Hub has a route to exactly this start of the server."""
    if opened is None or not opened.get("ready"):
        return False
    return (opened.get("state") or {}).get("start") == hub_server.start


def _describe_error(error: Exception) -> str:
    """Return what happened, as part of a sentence."""
    if isinstance(error, RouteFailed):
        return str(error)
    if isinstance(error, httpx.HTTPStatusError):
        return f"the Hub responded with {error.response.status_code} when opening the route"
    if isinstance(error, httpx.HTTPError):
        return f"the Hub does not respond to itself ({type(error).__name__})"
    return "the portal did not respond to the Hub in time"
