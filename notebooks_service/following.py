"""Keeps the Hub like the portal's list of servers: opens doors, closes doors, after any loss.

The portal holds its answer until something has changed, so a new server has its door in a moment.
Everything goes through the Hub's own REST API. Nothing here is kept: a Hub that has lost its
database is told the same list and has the same doors a moment later.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import quote

import httpx

from notebooks_service.portal import Portal, PortalAway, Refused
from slipway.schemas.notebook_servers import HubServer, HubServers, NotebookState, hub_name

log = logging.getLogger(__name__)
_AGAIN_S: Final = 1.0
_ROUTES_EVERY_S: Final = 2.0
_PATIENCE_S: Final = 60.0
_OPEN: Final = (NotebookState.OPENING, NotebookState.READY)
_CONFLICT: Final = 409


class HubApi:
    """The Hub's own REST API, asked from inside its process."""

    def __init__(self, url: str, token: str) -> None:
        self._url = url
        self._http = httpx.AsyncClient()
        self._headers = {"Authorization": f"token {token}", "Content-Type": "application/json"}

    async def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """Return the body of the answer; raises httpx.HTTPError."""
        answer = await self._http.request(
            method,
            f"{self._url}{path}",
            headers=self._headers,
            content=None if method in ("GET", "DELETE") else json.dumps(body or {}),
            timeout=_PATIENCE_S,
        )
        answer.raise_for_status()
        return answer.json() if answer.content else None

    async def open_servers(self) -> dict[tuple[str, str], dict[str, Any]]:
        """Return the servers that the Hub thinks run, by (user, server)."""
        users = await self.ask("GET", "/users?state=active&limit=100000")
        return {
            (user["name"], name): server
            for user in users
            for name, server in (user.get("servers") or {}).items()
            if name and not server.get("stopped")
        }


class Follower:
    """Follows the portal until cancelled."""

    def __init__(
        self, portal: Portal, hub: HubApi, check_routes: Callable[[], Awaitable[None]]
    ) -> None:
        self._portal = portal
        self._hub = hub
        self._check_routes = check_routes
        self._opening: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Ask, converge, ask again; trouble costs a second."""
        seen = -1
        while True:
            try:
                told = await self._portal.servers(seen=seen)
                if told is not None and await self._converge(told):
                    seen = told.version
                elif told is not None:
                    await asyncio.sleep(_AGAIN_S)
            except (PortalAway, Refused, httpx.HTTPError, ValueError) as error:
                log.warning("the portal cannot be followed now: %s", error)
                await asyncio.sleep(_AGAIN_S)

    async def keep_routes(self) -> None:
        """Give the proxy its routes again after it was restarted."""
        while True:
            await asyncio.sleep(_ROUTES_EVERY_S)
            try:
                await self._check_routes()
            except Exception as error:  # noqa: BLE001 - the proxy is away: try again
                log.debug("the proxy's routes cannot be checked now: %s", error)

    async def _converge(self, told: HubServers) -> bool:
        """Open and close what differs; returns whether nothing is left to do."""
        wanted = {(one.user, hub_name(one.id)): one for one in told.servers if one.state in _OPEN}
        opened = await self._hub.open_servers()
        closed = [
            self._close(user, name)
            for (user, name), server in opened.items()
            if (user, name) not in wanted and not server.get("pending")
        ]
        done = all(await asyncio.gather(*closed))
        for key, one in wanted.items():
            self._see_to(one, opened.get(key))
        return done

    def _see_to(self, one: HubServer, opened: dict[str, Any] | None) -> None:
        """Open the door to a server, each in a task of its own: none waits for another."""
        start = ((opened or {}).get("state") or {}).get("start")
        is_open = opened is not None and opened.get("ready") and start == one.start
        if one.state == NotebookState.READY and is_open:
            return
        if one.id not in self._opening:
            stale = opened is not None and not is_open and not opened.get("pending")
            task = asyncio.create_task(self._open(one, close_first=stale, is_open=bool(is_open)))
            self._opening[one.id] = task
            task.add_done_callback(lambda _: self._opening.pop(one.id, None))

    async def _open(self, one: HubServer, *, close_first: bool, is_open: bool) -> None:
        user, name = quote(one.user), quote(hub_name(one.id))
        try:
            if not is_open:
                if close_first:
                    await self._close(one.user, hub_name(one.id))
                await self._make_user(user)
                await self._hub.ask("POST", f"/users/{user}/servers/{name}")
                await self._wait_until_ready(one)
            await self._portal.routed(one.id, one.start)
        except (PortalAway, Refused, httpx.HTTPError) as error:
            log.warning("the door to %s could not be opened: %s", one.id, error)
            await asyncio.sleep(_AGAIN_S)

    async def _wait_until_ready(self, one: HubServer) -> None:
        while True:
            found = (await self._hub.open_servers()).get((one.user, hub_name(one.id)))
            if found is None or found.get("ready"):
                return
            await asyncio.sleep(0.1)

    async def _make_user(self, user: str) -> None:
        try:
            await self._hub.ask("POST", f"/users/{user}")
        except httpx.HTTPStatusError as error:
            if error.response.status_code != _CONFLICT:
                raise

    async def _close(self, user: str, name: str) -> bool:
        path = f"/users/{quote(user)}/servers/{quote(name)}"
        try:
            await self._hub.ask("DELETE", path)
        except httpx.HTTPError as error:
            log.warning("the door to %s could not be closed: %s", name, error)
            return False
        return True
