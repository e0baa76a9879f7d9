"""HTTP client of the Hub for the portal. The schemas are in `slipway.schemas.notebook_servers`."""

from typing import Any, Final, Self
from urllib.parse import quote

import httpx

from slipway.schemas.notebook_servers import HubServer, HubServers
from workers.portal_client.client import TIMEOUT_S, AsyncPortalClient

_HOLD_S: Final = 25


class Portal:
    """The portal's API for Hubs. All requests are idempotent."""

    def __init__(self, url: str, token: str) -> None:
        self._client = AsyncPortalClient(f"{url}/api/hub/v1", token)

    def __deepcopy__(self, _memo: dict[int, Any]) -> Self:
        """Return itself: settings are copied for each spawner, but connections are shared."""
        return self

    async def servers(self, *, seen: int) -> HubServers | None:
        """Return all running servers once they differ from `seen`, or None after the long poll."""
        headers = {"If-None-Match": f'"{seen}"'}
        body = await self._request(
            "GET", f"/servers?wait_s={_HOLD_S}", headers=headers, timeout=_HOLD_S + TIMEOUT_S
        )
        return None if body is None else HubServers.model_validate(body)

    async def show(self, server: str) -> HubServer:
        """Return the state of a server."""
        return HubServer.model_validate(await self._request("GET", f"/servers/{quote(server)}"))

    async def start(self, server: str) -> HubServer:
        """Start a server unless it is running, and return its state."""
        path = f"/servers/{quote(server)}/start"
        return HubServer.model_validate(await self._request("POST", path, {}))

    async def routed(self, server: str, start: str) -> HubServer:
        """Report that browsers reach one start of a server, and return the server's state."""
        path = f"/servers/{quote(server)}/routed"
        return HubServer.model_validate(await self._request("POST", path, {"start": start}))

    async def report_trouble(self, server: str, start: str, why: str) -> HubServer:
        """Report why browsers do not reach one start of a server yet, and return its state."""
        path = f"/servers/{quote(server)}/trouble"
        body = {"start": start, "why": why}
        return HubServer.model_validate(await self._request("POST", path, body))

    async def _request(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        **options: Any,
    ) -> Any:
        if body is not None:
            options["json"] = body
        answer = await self._client.request(method, path, **options)
        return None if answer.status_code == httpx.codes.NOT_MODIFIED else answer.json()
