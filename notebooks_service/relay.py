"""The Hub's way to servers in pools: through the relay's Unix sockets.

Such a server has an address below `relay.invalid`, which no resolver knows. The proxy does the same
in `proxy.mjs`.
"""

from dataclasses import dataclass
from pathlib import Path

import aiohttp

from slipway.schemas.relay import door_name_of


def door_of(host: str, folder: Path) -> Path | None:
    """Return the socket that a host name stands for, or None for any other host."""
    name = door_name_of(host)
    return folder / name if name else None


@dataclass(frozen=True)
class ThroughRelay:
    """Middleware of the Hub's HTTP client, which asks new servers whether they respond."""

    folder: Path

    async def __call__(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Send a request to its door, and all others as usual."""
        door = door_of(request.url.host or "", self.folder)
        if door is None:
            return await handler(request)
        connector = aiohttp.UnixConnector(path=str(door))
        async with aiohttp.ClientSession(connector=connector) as session:
            response = await session.request(
                request.method, request.url, headers=request.headers, allow_redirects=False
            )
            await response.read()
            return response
