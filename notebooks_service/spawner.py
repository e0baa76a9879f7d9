"""Spawner of notebook servers, which are workloads of Slipway, started through its API."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

from jupyterhub.spawner import Spawner, SpawnException
from traitlets import Instance, Unicode

from notebooks_service.portal import Portal
from slipway.schemas.notebook_servers import HubServer, NotebookState, server_id_of
from workers.portal_client.client import PortalRefused, PortalUnreachable

_LOOK_EVERY_S: Final = 0.1
_ANSWERS: Final = (NotebookState.OPENING, NotebookState.READY)
_GONE: Final = 1
_NOT_FOUND: Final = 404


class SlipwaySpawner(Spawner):  # type: ignore[misc]
    """Starts the server of this name through the portal, waits for it, and reports its progress.

    The portal decides whether a server is running: `start_id` is the start that this spawner has
    opened the route to.
    """

    portal = Instance(Portal, config=True)
    start_id = Unicode("")
    _last: HubServer | None = None

    @property
    def _id(self) -> str:
        return server_id_of(self.name)

    def get_state(self) -> dict[str, Any]:
        """Return the state to persist over a restart of the Hub."""
        return {**super().get_state(), "start": self.start_id}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore the persisted state."""
        super().load_state(state)
        self.start_id = state.get("start", "")

    def clear_state(self) -> None:
        """Clear the start."""
        super().clear_state()
        self.start_id = ""

    async def start(self) -> str:
        """Wait until the server responds, and return its URL."""
        try:
            hub_server = await self.portal.start(self._id)
            self._check(hub_server)
            while hub_server.state not in _ANSWERS or not hub_server.address:
                if hub_server.state in (NotebookState.FAILED, NotebookState.STOPPED):
                    raise SpawnException(hub_server.message, reason="ended")
                self._last = hub_server
                await asyncio.sleep(_LOOK_EVERY_S)
                hub_server = await self.portal.show(self._id)
        except PortalRefused as error:
            message = str(error) if error.status != _NOT_FOUND else _NO_SUCH
            raise SpawnException(message, reason="refused") from error
        except PortalUnreachable as error:
            raise SpawnException(f"Slipway does not respond: {error}.", reason="away") from error
        self._last = hub_server
        self.start_id = hub_server.start
        # The server received this token when its workload started. The Hub needs the same one.
        self.api_token = hub_server.token
        return f"http://{hub_server.address}"

    def _check(self, hub_server: HubServer) -> None:
        if hub_server.user != self.user.name:
            raise SpawnException(_NO_SUCH, reason="foreign")

    async def poll(self) -> int | None:
        """Return None while it runs, also while the portal is unreachable."""
        try:
            hub_server = await self.portal.show(self._id)
        except PortalUnreachable:
            return None
        except PortalRefused:
            return _GONE
        runs = hub_server.state in (*_ANSWERS, NotebookState.STARTING, NotebookState.STOPPING)
        return None if runs and hub_server.start == self.start_id else _GONE

    async def stop(self, now: bool = False) -> None:
        """Leave the server alone: only the portal stops servers, the Hub only closes routes.

        The Hub also closes routes that it could not finish, for instance without its proxy.
        """

    async def progress(self) -> AsyncIterator[dict[str, Any]]:
        """Yield each step once, as the portal reports it."""
        message = ""
        while True:
            hub_server = self._last
            if hub_server is not None and hub_server.message != message:
                message = hub_server.message
                yield {"progress": min(hub_server.progress, 95), "message": message}
            await asyncio.sleep(_LOOK_EVERY_S)


_NO_SUCH: Final = "You have no such notebook server. Launch notebooks from the portal."
