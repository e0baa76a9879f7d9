"""Level-triggered reconciliation of running tasks with the portal's desired state. Idempotent."""

import asyncio
import logging
from dataclasses import replace
from typing import Final

from slipway.schemas.agent import DesiredState, DesiredTask, TaskKey
from workers.launcher.launch import StopRequest
from workers.node_agent.attempts import Attempt, TaskRecord
from workers.node_agent.builds_ahead import BuildsAhead
from workers.node_agent.errors import StartError
from workers.node_agent.folders import handle_of
from workers.node_agent.gpus import Gpus
from workers.node_agent.log_shipper import LogShipper
from workers.node_agent.portal import Portal
from workers.node_agent.runner import AttemptRunner, NodeServices, clear_folder
from workers.node_agent.workspace_files import WorkspaceFiles
from workers.portal_client.backoff import Backoff
from workers.portal_client.client import PortalRefused, PortalUnreachable

log = logging.getLogger(__name__)
_SWEEP_EVERY_S: Final = 1.0
_TELL_PATIENCE_S: Final = 2.0
# A task that does not end within its grace is killed. This is time for that.
_KILL_PATIENCE_S: Final = 10.0


class Reconciler:
    """Follows the desired state, and owns the runners."""

    def __init__(
        self,
        portal: Portal,
        rooms: NodeServices,
        shipper: LogShipper,
        gpus: Gpus,
        files: WorkspaceFiles,
        builds_ahead: BuildsAhead,
    ) -> None:
        self._portal = portal
        self._services = rooms
        self._table = rooms.table
        self._shipper = shipper
        self._gpus = gpus
        self._files = files
        self._builds_ahead = builds_ahead
        self._runners: set[asyncio.Task[None]] = set()
        self._backoff = Backoff()
        self._closing = False
        # Set once tasks have run here and all of them are finished, reported and deleted.
        self.is_over = asyncio.Event()
        self._has_begun = False
        self.prewarm: list[str] = []

    def adopt(self) -> None:
        """Adopt the attempts of an earlier agent, before the first call to the portal."""
        for attempt in self._table.load_leftover():
            log.info("adopting %s", attempt.handle)
            self._table.add(attempt)
            self._run(attempt)

    async def follow(self) -> None:
        """Ask for the desired state for ever."""
        seen = 0
        while True:
            try:
                desired = await self._portal.desired(seen)
            except (PortalUnreachable, PortalRefused) as error:
                log.info("the desired state is unknown: %s", error)
                await asyncio.sleep(self._backoff.pause_s())
                continue
            self._backoff.reset()
            seen = desired.version
            self.apply(desired)

    def apply(self, desired: DesiredState) -> None:
        """Start new attempts and pass the desired state to the others."""
        self.prewarm = list(desired.prewarm)
        self._files.accept(desired.file_requests)
        self._builds_ahead.accept(desired.builds_ahead)
        listed: set[str] = set()
        for task in desired.tasks:
            key = TaskKey(task_id=task.task_id, epoch=task.epoch)
            listed.add(handle_of(key))
            attempt = self._table.find(key)
            if attempt is not None:
                attempt.desired = task
            elif task.action == "start" and task.spec is not None and not self._closing:
                self._begin(task)
        shells = {handle_of(key) for key in desired.shells}
        dashboards = {handle_of(key) for key in desired.dashboards}
        for attempt in self._table:
            attempt.known_to_portal = True
            attempt.has_shells = attempt.handle in shells
            attempt.has_dashboard = attempt.handle in dashboards
            if attempt.handle not in listed:
                attempt.desired = None
        self._table.notify()

    def _begin(self, task: DesiredTask) -> None:
        key = TaskKey(task_id=task.task_id, epoch=task.epoch)
        newest = max(
            (other.record.epoch for other in self._table if other.record.task_id == task.task_id),
            default=0,
        )
        if newest > task.epoch:
            return  # an outdated list
        try:
            gpus = self._assign_gpus(task)
            folder = self._services.folders.task(handle_of(key))
        except StartError as error:
            self._refuse(task, error)
            return
        attempt = Attempt(TaskRecord.of(task, gpus), folder)
        attempt.desired = task
        self._table.add(attempt)
        self._has_begun = True
        self._run(attempt)

    def _refuse(self, task: DesiredTask, error: StartError) -> None:
        """Report an end for a task that cannot even have a folder."""
        record = TaskRecord.of(task, ())
        attempt = Attempt(record, self._services.folders.refused(handle_of(record.key)))
        attempt.desired = task
        attempt.finished = True
        attempt.end(error.reason, str(error))
        self._shipper.complete.add(attempt.handle)
        self._table.add(attempt)
        self._has_begun = True

    def _assign_gpus(self, task: DesiredTask) -> tuple[str, ...]:
        gpus = task.spec.resources.gpus if task.spec is not None else 0
        indices = task.spec.gpu_indices if task.spec is not None else []
        if indices:
            return self._gpus_at(indices)
        taken = self._table.gpus_in_use()
        free = [uuid for uuid in self._gpus.uuids if uuid not in taken]
        if len(free) < gpus:
            raise StartError(f"The task needs {gpus} GPUs and this node has {len(free)} free.")
        return tuple(free[:gpus])

    def _gpus_at(self, indices: list[int]) -> tuple[str, ...]:
        """Return the cards that the portal chose, by the indices reported to it."""
        here = self._gpus.uuids
        if any(not 0 <= index < len(here) for index in indices):
            raise StartError(
                f"The task was assigned the GPUs {indices}, but this node has {len(here)}."
            )
        return tuple(here[index] for index in indices)

    def _run(self, attempt: Attempt) -> None:
        runner = asyncio.create_task(AttemptRunner(attempt, self._services).run())
        self._runners.add(runner)
        runner.add_done_callback(self._runners.discard)

    async def sweep(self) -> None:
        """Delete attempts that are finished, reported and no longer listed."""
        while True:
            await asyncio.sleep(_SWEEP_EVERY_S)
            for attempt in self._table:
                if attempt.finished and not attempt.is_desired and self._is_reported(attempt):
                    await clear_folder(attempt.folder.path)
                    self._table.discard(attempt)
                    self._shipper.discard(attempt)
            if self._has_begun and not any(self._table):
                self.is_over.set()

    def _is_reported(self, attempt: Attempt) -> bool:
        if not attempt.known_to_portal:
            return False
        return attempt.reported and (attempt.stale or attempt.handle in self._shipper.complete)

    async def stop_all(self, request: StopRequest) -> None:
        """End every task of this node and report it, for an agent that leaves nothing running.

        No task gets more grace than it was promised, or than the request says.
        """
        self._closing = True
        for attempt in self._table:
            if not attempt.finished:
                grace_s = min(attempt.record.stop_grace_s, request.grace_s)
                attempt.stop_here = replace(request, grace_s=grace_s)
        self._table.notify()
        deadline = asyncio.get_running_loop().time() + request.grace_s + _KILL_PATIENCE_S
        while self._runners and asyncio.get_running_loop().time() < deadline:
            await asyncio.wait(self._runners, timeout=0.2)
        told_by = asyncio.get_running_loop().time() + _TELL_PATIENCE_S
        while any(attempt.finished and not attempt.reported for attempt in self._table):
            if asyncio.get_running_loop().time() > told_by:
                break  # the next agent with this data folder reports it
            await asyncio.sleep(0.02)
