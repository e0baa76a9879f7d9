"""Client of the portal for agents: one method per route of `/api/agent/v1`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import httpx
import pydantic

from slipway.schemas.agent import (
    DesiredState,
    EnvironmentReport,
    EnvironmentSpec,
    Heartbeat,
    HeartbeatAnswer,
    Join,
    Joined,
    LogAnswer,
    Reports,
    ReportsAnswer,
    Samples,
    TaskKey,
)
from workers.node_agent.errors import PortalRefused, PortalUnreachable, StaleEpoch

Body = TypeVar("Body", bound=pydantic.BaseModel)
_PATIENCE_S: Final = 10.0
HEARTBEAT_PATIENCE_S: Final = 5.0
# The store may take long to finish a large file.
_TRANSFER_PATIENCE_S: Final = 120.0
_POLL_S: Final = 20.0
_TRY_LATER: Final = frozenset({408, 425, 429})
_STALE: Final = "stale_epoch"


class Portal:
    """Typed calls. Each raises PortalUnreachable or PortalRefused, about a task also StaleEpoch."""

    def __init__(self, url: str, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._client = httpx.AsyncClient(
            base_url=f"{url}/api/agent/v1/",
            transport=transport,
            timeout=httpx.Timeout(_PATIENCE_S, connect=HEARTBEAT_PATIENCE_S),
            limits=httpx.Limits(max_connections=16, keepalive_expiry=60),
        )

    def use_token(self, node_token: str) -> None:
        """Speak as this node from now on."""
        self._client.headers["Authorization"] = f"Bearer {node_token}"

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def join(self, join: Join) -> Joined:
        """Become a node with a one-time token."""
        return _read(Joined, await self._post("join", join))

    async def heartbeat(self, heartbeat: Heartbeat) -> HeartbeatAnswer:
        """Renew the leases of this node."""
        answer = await self._post("heartbeat", heartbeat, timeout=HEARTBEAT_PATIENCE_S)
        return _read(HeartbeatAnswer, answer)

    async def desired(self, seen: int) -> DesiredState:
        """Return what this node should run.

        The portal holds the request until there is a change.
        """
        query = {"seen": str(seen), "wait_s": str(int(_POLL_S))}
        answer = await self._call("GET", "desired", params=query, timeout=_POLL_S + _PATIENCE_S)
        return _read(DesiredState, answer)

    async def report(self, reports: Reports) -> ReportsAnswer:
        """Report events of tasks, in order."""
        return _read(ReportsAnswer, await self._post("reports", reports))

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
        return _read(LogAnswer, answer).next_offset

    async def samples(self, samples: Samples) -> None:
        """Report resource usage of tasks."""
        await self._post("samples", samples)

    async def environment(self, digest: str) -> EnvironmentSpec:
        """Return the build spec of an environment."""
        answer = await self._call("GET", f"environments/{digest}")
        return _read(EnvironmentSpec, answer)

    async def report_environment(self, digest: str, report: EnvironmentReport) -> int:
        """Report the state of a build and return the log offset that the portal expects next."""
        answer = await self._post(f"environments/{digest}/reports", report)
        return _read(LogAnswer, answer).next_offset

    @asynccontextmanager
    async def snapshot(self, digest: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """The bytes of a code snapshot, as they come."""
        async with self._streamed(f"snapshots/{digest}") as blocks:
            yield blocks

    @asynccontextmanager
    async def _streamed(self, path: str) -> AsyncIterator[AsyncIterator[bytes]]:
        try:
            async with self._client.stream("GET", path) as response:
                if response.is_error:
                    await response.aread()
                _raise_for(response)
                yield response.aiter_bytes(1 << 18)
        except httpx.HTTPError as error:
            raise PortalUnreachable(f"{type(error).__name__}: {error}") from error

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
        async with self._streamed(path) as blocks:
            yield blocks

    async def _post(self, path: str, body: pydantic.BaseModel, **options: Any) -> bytes:
        return await self._call(
            "POST",
            path,
            content=body.model_dump_json(),
            headers={"Content-Type": "application/json"},
            **options,
        )

    async def _call(self, method: str, path: str, **options: Any) -> bytes:
        try:
            response = await self._client.request(method, path, **options)
        except httpx.HTTPError as error:
            raise PortalUnreachable(f"{type(error).__name__}: {error}") from error
        _raise_for(response)
        return response.content


def _read(model: type[Body], answer: bytes) -> Body:
    """Parse a response. An invalid one did not come from the portal (a proxy's page, say)."""
    try:
        return model.model_validate_json(answer)
    except pydantic.ValidationError as error:
        raise PortalUnreachable(f"An answer was no {model.__name__}: {error}") from error


def _raise_for(response: httpx.Response) -> None:
    if response.is_success:
        return
    try:
        problem = response.json()
        code, detail = str(problem["code"]), str(problem["detail"])
    except (ValueError, KeyError, TypeError):
        code, detail = "unknown", response.text[:200]
    status = response.status_code
    if status >= 500 or status in _TRY_LATER or response.is_redirect:
        raise PortalUnreachable(f"{status} {code}: {detail}")
    if code == _STALE:
        raise StaleEpoch(detail)
    raise PortalRefused(status, code, detail)
