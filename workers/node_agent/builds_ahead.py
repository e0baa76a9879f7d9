"""Builds of environments before a task needs them, which the portal requests."""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final

from slipway.schemas.agent import BuildAheadRequest
from slipway.schemas.backends import BACKENDS, DEFAULT_BACKEND
from workers.node_agent.backends.base import Backend, TaskCode
from workers.node_agent.builds import EnvironmentBuilds
from workers.node_agent.errors import StartError
from workers.node_agent.snapshots import SnapshotStore

log = logging.getLogger(__name__)
# Builds for tasks are not counted: they start at once.
_AT_ONCE: Final = 1


class BuildsAhead:
    """Serves the build requests that the portal lists for this node, each once."""

    def __init__(
        self, builds: EnvironmentBuilds, backends: Mapping[str, Backend], snapshots: SnapshotStore
    ) -> None:
        self._builds = builds
        self._backends = backends
        self._snapshots = snapshots
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
        backend = self._backends.get(DEFAULT_BACKEND)
        code = None
        if request.image is not None:
            builders = (name for name, info in BACKENDS.items() if info.builds_images)
            backend = next(filter(None, map(self._backends.get, builders)), None)
            fetch = partial(self._snapshots.fetch, request.image.snapshot)
            code = TaskCode(fetch, request.image.resources, request.image.repository)
        if backend is None:
            return
        async with self._limit:
            try:
                await self._builds.ensure(
                    backend,
                    request.digest,
                    project=request.project,
                    from_source=request.from_source or code is not None,
                    code=code,
                    on_build=lambda: log.info("building %s ahead", request.digest[:12]),
                )
            except StartError as error:
                log.info("%s was not built ahead: %s", request.digest[:12], error)
            except Exception:
                log.exception("%s was not built ahead", request.digest[:12])
