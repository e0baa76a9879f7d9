"""Client of the portal for agents: one method per route of `/api/agent/v1`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlencode

import httpx
import pydantic

from slipway.schemas.agent import (
    DesiredState,
    EnvironmentReport,
    EnvironmentSpec,
    Heartbeat,
    HeartbeatAnswer,
    Join,
    JoinResponse,
    LogAnswer,
    Reports,
    ReportsAnswer,
    Samples,
    TaskKey,
)
from slipway.schemas.relay import RelayGrant
from slipway.schemas.workspace_files import FileReport
from workers.node_agent.errors import StaleEpoch
from workers.portal_client.client import TIMEOUT_S, AsyncPortalClient, PortalRefused, parsed

HEARTBEAT_PATIENCE_S: Final = 5.0
# The store may take long to finish a large file.
_TRANSFER_PATIENCE_S: Final = 120.0
_POLL_S: Final = 20.0
_STALE: Final = "stale_epoch"


class Portal:
    """Typed calls. Each raises PortalUnreachable or PortalRefused, about a task also StaleEpoch."""

    def __init__(self, url: str, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._client = AsyncPortalClient(f"{url}/api/agent/v1/", transport=transport)
        self.node_token = ""

    def use_token(self, node_token: str) -> None:
        """Speak as this node from now on."""
        self.node_token = node_token
        self._client.use_token(node_token)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def join(self, join: Join) -> JoinResponse:
        """Become a node with a one-time token."""
        return parsed(JoinResponse, await self._post("join", join))

    async def heartbeat(self, heartbeat: Heartbeat) -> HeartbeatAnswer:
        """Renew the leases of this node."""
        answer = await self._post("heartbeat", heartbeat, timeout=HEARTBEAT_PATIENCE_S)
        return parsed(HeartbeatAnswer, answer)

    async def desired(self, seen: int) -> DesiredState:
        """Return what this node should run.

        The portal holds the request until there is a change.
        """
        query = {"seen": str(seen), "wait_s": str(int(_POLL_S))}
        answer = await self._call("GET", "desired", params=query, timeout=_POLL_S + TIMEOUT_S)
        return parsed(DesiredState, answer)

    async def relay(self) -> RelayGrant:
        """Return the address of the relay."""
        return parsed(RelayGrant, await self._call("GET", "relay"))

    async def report(self, reports: Reports) -> ReportsAnswer:
        """Report events of tasks, in order."""
        return parsed(ReportsAnswer, await self._post("reports", reports))

    async def put_log(
        self, key: TaskKey, rank: int, offset: int, data: bytes, *, is_last: bool = False
    ) -> int:
        """Send log bytes and return the next offset that the portal expects.

        `is_last`, without bytes, marks the end of the log.
        """
        answer = await self._call(
            "PUT",
            f"logs/{key.task_id}/{key.epoch}/{rank}",
            params={"offset": str(offset)} | ({"last": "true"} if is_last else {}),
            content=data,
            headers={"Content-Type": "application/octet-stream"},
        )
        return parsed(LogAnswer, answer).next_offset

    async def samples(self, samples: Samples) -> None:
        """Report resource usage of tasks."""
        await self._post("samples", samples)

    async def environment(self, digest: str, project: str | None) -> EnvironmentSpec:
        """Return the build spec of an environment, for a task of the project."""
        params = {"project": project} if project else {}
        answer = await self._call("GET", f"environments/{digest}", params=params)
        return parsed(EnvironmentSpec, answer)

    async def report_environment(self, digest: str, report: EnvironmentReport) -> int:
        """Report the state of a build and return the log offset that the portal expects next."""
        answer = await self._post(f"environments/{digest}/reports", report)
        return parsed(LogAnswer, answer).next_offset

    @asynccontextmanager
    async def snapshot(self, digest: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """The bytes of a code snapshot, as they come."""
        async with self._stream(f"snapshots/{digest}") as blocks:
            yield blocks

    @asynccontextmanager
    async def archive(
        self, environment: str, project: str, digest: str
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The bytes of a wheel or source archive that an environment names, as they come."""
        query = urlencode({"project": project})
        path = f"environments/{environment}/archives/{digest}?{query}"
        async with self._stream(path) as blocks:
            yield blocks

    async def put_checkpoint(
        self, key: TaskKey, step: int, size_bytes: int, pieces: AsyncIterator[bytes]
    ) -> None:
        """Send a checkpoint in its transfer format. Errors of reading it are raised here."""
        await self._call(
            "PUT",
            f"checkpoints/{key.task_id}/{key.epoch}/{step}",
            content=pieces,
            headers={
                "Content-Type": "application/octet-stream",
                "Content-Length": str(size_bytes),
            },
            timeout=httpx.Timeout(_TRANSFER_PATIENCE_S, connect=HEARTBEAT_PATIENCE_S),
        )

    @asynccontextmanager
    async def checkpoint(self, key: TaskKey, step: int) -> AsyncIterator[AsyncIterator[bytes]]:
        """The bytes of a checkpoint, as they come."""
        path = f"checkpoints/{key.task_id}/{key.epoch}/{step}"
        async with self._stream(path) as blocks:
            yield blocks

    async def claim_file_request(self, request_id: str) -> None:
        """Take over a request about files. Refused if nobody waits for it any more."""
        await self._call("POST", f"file-requests/{request_id}/claim")

    async def report_file_request(self, request_id: str, report: FileReport) -> None:
        """Report the answer to a request about files."""
        await self._post(f"file-requests/{request_id}/reports", report)

    async def put_file_content(self, request_id: str, offset: int, data: bytes) -> None:
        """Send bytes of a file that somebody downloads."""
        await self._call(
            "PUT",
            f"file-requests/{request_id}/content",
            params={"offset": str(offset)},
            content=data,
            headers={"Content-Type": "application/octet-stream"},
            timeout=httpx.Timeout(_TRANSFER_PATIENCE_S, connect=HEARTBEAT_PATIENCE_S),
        )

    @asynccontextmanager
    async def file_content(self, request_id: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """The bytes of a file that somebody uploads, as they come."""
        async with self._stream(f"file-requests/{request_id}/content") as blocks:
            yield blocks

    async def _post(self, path: str, body: pydantic.BaseModel, **options: Any) -> bytes:
        return await self._call("POST", path, body, **options)

    async def _call(
        self, method: str, path: str, body: pydantic.BaseModel | None = None, **options: Any
    ) -> bytes:
        try:
            response = await self._client.request(method, path, body, **options)
        except PortalRefused as error:
            if error.code == _STALE:
                raise StaleEpoch(error.detail) from error
            raise
        return response.content

    @asynccontextmanager
    async def _stream(self, path: str) -> AsyncIterator[AsyncIterator[bytes]]:
        try:
            async with self._client.stream(path) as pieces:
                yield pieces
        except PortalRefused as error:
            if error.code == _STALE:
                raise StaleEpoch(error.detail) from error
            raise
