"""HTTP client of the Hub for the portal. The schemas are in `slipway.schemas.notebook_servers`."""

import json
from typing import Any, Final, Self
from urllib.parse import quote

import httpx

from slipway.schemas.notebook_servers import HubServer, HubServers

_PATIENCE_S: Final = 10.0
_HOLD_S: Final = 25
_UNCHANGED: Final = 304


class PortalAway(Exception):
    """The portal did not answer. The message says why."""


class PortalRefused(Exception):
    """The portal answered with an error. `status` is its HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Portal:
    """The portal's API for Hubs. Everything may be repeated."""

    def __init__(self, url: str, token: str) -> None:
        self._url = f"{url}/api/hub/v1"
        self._http = httpx.AsyncClient()
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def __deepcopy__(self, _memo: dict[int, Any]) -> Self:
        """Return itself: settings are copied for each spawner, connections are shared."""
        return self

    async def servers(self, *, seen: int) -> HubServers | None:
        """Return all running servers once they differ from `seen`, or None after the long poll."""
        headers = {"If-None-Match": f'"{seen}"'}
        body = await self._ask(
            "GET", f"/servers?wait_s={_HOLD_S}", headers=headers, patience_s=_HOLD_S + _PATIENCE_S
        )
        return None if body is None else HubServers.model_validate(body)

    async def show(self, server: str) -> HubServer:
        """Return the state of a server."""
        return HubServer.model_validate(await self._ask("GET", f"/servers/{quote(server)}"))

    async def start(self, server: str) -> HubServer:
        """Start a server unless it is running, and return its state."""
        path = f"/servers/{quote(server)}/start"
        return HubServer.model_validate(await self._ask("POST", path, {}))

    async def routed(self, server: str, start: str) -> HubServer:
        """Report that browsers reach one start of a server, and return the server's state."""
        path = f"/servers/{quote(server)}/routed"
        return HubServer.model_validate(await self._ask("POST", path, {"start": start}))

    async def trouble(self, server: str, start: str, why: str) -> HubServer:
        """Report why browsers do not reach one start of a server yet, and return its state."""
        path = f"/servers/{quote(server)}/trouble"
        body = {"start": start, "why": why}
        return HubServer.model_validate(await self._ask("POST", path, body))

    async def _ask(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        *,
        headers: dict[str, str] | None = None,
        patience_s: float = _PATIENCE_S,
    ) -> Any:
        try:
            answer = await self._http.request(
                method,
                self._url + path,
                headers=self._headers | (headers or {}),
                content=None if body is None else json.dumps(body),
                timeout=patience_s,
            )
        except httpx.HTTPError as error:
            raise PortalAway(f"the portal cannot be reached ({error})") from error
        if answer.status_code == _UNCHANGED:
            return None
        if answer.is_server_error:
            raise PortalAway(f"the portal responded with {answer.status_code}")
        if not answer.is_success:
            raise PortalRefused(answer.status_code, _detail(answer.content))
        return answer.json()


def _detail(body: bytes) -> str:
    try:
        document = json.loads(body)
        return f"{document['detail']} {document.get('next_step') or ''}".strip()
    except (ValueError, KeyError, TypeError):
        return "The portal refused the request."
