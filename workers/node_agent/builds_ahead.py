"""Builds of environments before a task needs them, which the portal requests."""

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from slipway.schemas.agent import BuildAheadRequest
from workers.node_agent.backends.base import Backend
from workers.node_agent.builds import EnvironmentBuilds
from workers.node_agent.errors import StartError

log = logging.getLogger(__name__)
# Builds for tasks are not counted: they start at once.
_AT_ONCE: Final = 1


class BuildsAhead:
    """Serves the build requests that the portal lists for this node, each once."""

    def __init__(self, builds: EnvironmentBuilds, backend: Backend | None) -> None:
        self._builds = builds
        self._backend = backend
        self._limit = asyncio.Semaphore(_AT_ONCE)
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def accept(self, requests: Iterable[BuildAheadRequest]) -> None:
        """Start the builds that are new, and forget those that are no longer listed."""
        listed = {request.id: request for request in requests}
        for request_id, task in list(self._tasks.items()):
            if request_id not in listed and task.done():
                del self._tasks[request_id]
        for request in listed.values():
            if request.id not in self._tasks:
                self._tasks[request.id] = asyncio.create_task(self._build(request))

    async def _build(self, request: BuildAheadRequest) -> None:
        if self._backend is None:
            return
        async with self._limit:
            try:
                await self._builds.ensure(
                    self._backend,
                    request.digest,
                    project=request.project,
                    from_source=request.from_source,
                    on_build=lambda: log.info("building %s ahead", request.digest[:12]),
                )
            except StartError as error:
                log.info("%s was not built ahead: %s", request.digest[:12], error)
            except Exception:
                log.exception("%s was not built ahead", request.digest[:12])
