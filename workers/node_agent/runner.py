"""Runs one attempt from its request to its end: prepare, start, watch, stop, clean up."""

import asyncio
import errno
import logging
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from slipway.schemas.agent import GangMember, TaskSpec
from slipway.schemas.workloads import ReasonCode
from workers.launcher.launch import (
    Gang,
    MemberAddress,
    RendezvousAddress,
    StateFolder,
    StopRequest,
)
from workers.launcher.lease import Lease
from workers.launcher.processes import uptime_s
from workers.launcher.removal import remove_tree
from workers.node_agent.attempts import Attempt, AttemptTable
from workers.node_agent.backends.base import (
    Backend,
    LaunchSpec,
    Observation,
    Phase,
    PreparedEnvironment,
    TaskCode,
)
from workers.node_agent.builds import EnvironmentBuilds
from workers.node_agent.checkpoints import CheckpointStore
from workers.node_agent.errors import StartError
from workers.node_agent.folders import NodeFolders
from workers.node_agent.notifier import Notifier
from workers.node_agent.snapshots import SnapshotStore, copy_fresh

log = logging.getLogger(__name__)
_LOOK_EVERY_S: Final = 1.0
# A shim that outlives the grace period by this much is killed.
_STOP_PATIENCE_S: Final = 5.0
_PEER_FAILED: Final = "Stopped because another task of the job has failed."
_NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True)
class NodeServices:
    """Dependencies of a runner on its node."""

    folders: NodeFolders
    backends: dict[str, Backend]
    builds: EnvironmentBuilds
    snapshots: SnapshotStore
    checkpoints: CheckpointStore
    lease: Lease
    table: AttemptTable
    notifier: Notifier
    address: str
    pass_env: dict[str, str]


class AttemptRunner:
    """One attempt. Every step may be repeated by a later agent that finds the folder."""

    def __init__(self, attempt: Attempt, rooms: NodeServices) -> None:
        self._attempt = attempt
        self._services = rooms
        self._stop_requested_at_s: float | None = None
        self._pending_stop: StopRequest | None = None

    async def run(self) -> None:
        """Run until nothing of the attempt still runs.

        Failures end the attempt and are not raised.
        """
        attempt = self._attempt
        backend = self._services.backends.get(attempt.record.backend)
        try:
            if backend is None:
                raise StartError(f"This node has no back end {attempt.record.backend!r}.")
            if await self._must_start(backend):
                await self._start_unless_stopped(backend)
            await self._watch(backend)
        except StartError as error:
            # The end of an allocation also ends the programs that prepare the task.
            request = attempt.stop_here
            reason = error.reason if request is None else ReasonCode(request.reason)
            attempt.end(reason, str(error) if request is None else request.message)
        except OSError as error:
            full = error.errno in _NO_SPACE
            reason = ReasonCode.DISK_FULL if full else ReasonCode.START_FAILED
            attempt.end(reason, f"The task could not be started on this node: {error.strerror}.")
        except Exception as error:
            log.exception("the attempt %s failed in the agent", attempt.handle)
            attempt.end(ReasonCode.START_FAILED, f"The agent failed: {type(error).__name__}.")
        if backend is not None:
            await self._clean_up(backend)
        await self._free_disk()
        attempt.finished = True
        self._services.table.notify()
        self._services.notifier.notify()

    async def _clean_up(self, backend: Backend) -> None:
        try:
            await backend.remove(self._attempt.handle)
        except (OSError, StartError) as error:
            log.warning("%s could not be removed: %s", self._attempt.handle, error)
        with suppress(OSError):
            self._services.folders.shell(self._attempt.handle).unlink(missing_ok=True)
            self._services.folders.dashboard(self._attempt.handle).unlink(missing_ok=True)

    async def _free_disk(self) -> None:
        """Delete what a task that filled the disk has left, before the portal forgets the task."""
        event = self._attempt.unwritten_end or self._attempt.journal.last()
        if event is not None and event.get("reason") == ReasonCode.DISK_FULL:
            folder = self._attempt.folder
            for path in (folder.work, folder.home, folder.tmp):
                await clear_folder(path)

    async def _must_start(self, backend: Backend) -> bool:
        """Return whether nothing of it has been started yet, by this agent or an earlier one."""
        if self._attempt.journal.has_ended():
            return False
        return (await backend.phase(self._attempt.handle)).never_started

    # Prepare

    async def _start_unless_stopped(self, backend: Backend) -> None:
        """Prepare and start. A stop request cancels the preparations at any point."""
        starting = asyncio.create_task(self._prepare_and_start(backend))
        news = self._attempt.notifier
        try:
            while not starting.done():
                seen = news.version
                if self._stop_request() is not None:
                    starting.cancel()
                rung = asyncio.create_task(news.wait(seen, within_s=_LOOK_EVERY_S))
                await asyncio.wait({starting, rung}, return_when=asyncio.FIRST_COMPLETED)
                rung.cancel()
            if not starting.cancelled():
                starting.result()
        finally:
            starting.cancel()

    async def _prepare_and_start(self, backend: Backend) -> None:
        attempt = self._attempt
        spec = await self._wait_for_spec()
        if spec is None:
            return
        folder = attempt.folder
        for path in (folder.state, folder.work, folder.home, folder.tmp):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        attempt.record.write(folder.record)
        attempt.journal.reserve()
        if attempt.journal.last() is None:
            self._record_progress("The node has accepted the task.")
        if spec.world_size > spec.procs:
            self._check_address()
        backend.check(spec)
        await self._wait_for_predecessors()
        persistent = self._services.folders.persistent_of(spec.persistent_key)
        persistent.parent.mkdir(mode=0o700, exist_ok=True)
        persistent.mkdir(mode=0o700, exist_ok=True)
        personal = None
        if spec.personal_key is not None:
            personal = self._services.folders.persistent_of(spec.personal_key)
            personal.parent.mkdir(mode=0o700, exist_ok=True)
            personal.mkdir(mode=0o700, exist_ok=True)
        cache = self._services.folders.cache_of(spec.persistent_key)
        if cache is not None:
            cache.mkdir(mode=0o700, exist_ok=True)
        prepared, *_ = await asyncio.gather(
            self._environment(backend, spec), self._code(spec), self._checkpoint(spec, persistent)
        )
        await self._wait_for_lease()
        order = LaunchSpec(
            key=attempt.key,
            workload_id=attempt.record.workload_id,
            spec=spec,
            folder=folder,
            persistent=persistent,
            cache=cache,
            personal=personal,
            address=self._services.address,
            runtime=prepared.runtime,
            readable=prepared.readable,
            gpus=attempt.record.gpus,
            environment={**self._services.pass_env, **prepared.variables},
        )
        await backend.start(order)

    async def _wait_for_spec(self) -> TaskSpec | None:
        """Wait for the portal and return the spec, or None if it no longer wants the attempt."""
        attempt = self._attempt
        while not attempt.known_to_portal and not attempt.stale:
            await self._wait_for_change(attempt.notifier.version)
        if attempt.desired is None or attempt.stale:
            return None
        return attempt.desired.spec

    def _check_address(self) -> None:
        """Raise StartError if ranks on other nodes cannot use the address of this one.

        The portal refuses to pass such an address on, and the gang would wait for it.
        """
        try:
            GangMember(address=self._services.address, ports=[1])
        except ValidationError as error:
            raise StartError(
                f"Other nodes cannot reach the address {self._services.address!r} of this node. "
                "Start its agent with --address and an address of its network."
            ) from error

    def _record_progress(self, message: str) -> None:
        self._attempt.journal.append("starting", message=message)
        self._services.notifier.notify()

    async def _wait_for_predecessors(self) -> None:
        """Wait until no earlier attempt of this task runs here: never two writers."""
        while self._services.table.predecessors(self._attempt):
            await self._wait_for_change(self._attempt.notifier.version)

    async def _environment(self, backend: Backend, spec: TaskSpec) -> PreparedEnvironment:
        code = None
        if spec.snapshot is not None:
            fetch = partial(self._services.snapshots.fetch, spec.snapshot)
            code = TaskCode(fetch, spec.resources)
        return await self._services.builds.ensure(
            backend,
            spec.environment,
            project=spec.persistent_key.partition("/")[0],
            code=code,
            on_build=lambda: self._record_progress(
                "Preparing the environment."
                if spec.environment
                else "Preparing the environment that jobs and notebooks find: the first time, a "
                "node takes a few minutes."
            ),
        )

    async def _code(self, spec: TaskSpec) -> None:
        if spec.snapshot is None:
            return
        snapshot = await self._services.snapshots.fetch(spec.snapshot)
        await asyncio.to_thread(copy_fresh, snapshot, self._attempt.folder.work)

    async def _checkpoint(self, spec: TaskSpec, persistent: Path) -> None:
        if spec.checkpoint is not None:
            await self._services.checkpoints.ensure(
                self._attempt.key, spec.checkpoint, persistent, self._record_progress
            )

    async def _wait_for_lease(self) -> None:
        while (left_s := self._services.lease.remaining_s()) is None or left_s <= 0:
            await self._wait_for_change(self._attempt.notifier.version)

    # Watch

    async def _watch(self, backend: Backend) -> None:
        attempt = self._attempt
        while True:
            seen = attempt.notifier.version
            observation = await backend.phase(attempt.handle)
            if observation.phase is Phase.ENDED:
                return
            if observation.phase is Phase.LOST:
                await backend.remove(attempt.handle)
                self._end_lost(observation)
                return
            self._introduce()
            await self._obey(backend)
            await self._wait_for_change(seen)

    def _introduce(self) -> None:
        """Pass the addresses of the gang to the shim, which waits for them."""
        desired = self._attempt.desired
        state = StateFolder(self._attempt.folder.state)
        if desired is None or desired.rendezvous is None or desired.members is None:
            return
        if state.gang.exists():
            return
        meeting = RendezvousAddress(**desired.rendezvous.model_dump())
        members = (MemberAddress(item.address, tuple(item.ports)) for item in desired.members)
        state.introduce(Gang(meeting, tuple(members)))

    async def _obey(self, backend: Backend) -> None:
        request = self._stop_request()
        if request is None:
            return
        pending = self._pending_stop
        is_new = pending is None or request.grace_s < pending.grace_s
        if is_new or (pending is not None and pending.keeps and not request.keeps):
            self._pending_stop = request
            self._stop_requested_at_s = uptime_s()
            await backend.stop(self._attempt.handle, request)
        if request.keeps:
            return  # its ranks end within the grace, and the task stays
        assert self._pending_stop is not None  # noqa: S101 - set above
        assert self._stop_requested_at_s is not None  # noqa: S101 - set with _pending_stop
        if uptime_s() > self._stop_requested_at_s + self._pending_stop.grace_s + _STOP_PATIENCE_S:
            log.warning("%s did not stop; killing it", self._attempt.handle)
            await backend.remove(self._attempt.handle)

    def _stop_request(self) -> StopRequest | None:
        """Return the reason and grace period if the attempt must end, else None."""
        attempt = self._attempt
        if attempt.stale:
            return StopRequest(ReasonCode.FENCED.value, 0.0)
        if attempt.stop_here is not None:
            return attempt.stop_here
        if attempt.disk_stop is not None:
            return attempt.disk_stop
        if not attempt.known_to_portal:
            return None
        grace_s = attempt.record.stop_grace_s
        if attempt.desired is None:
            return StopRequest(ReasonCode.FENCED.value, 0.0 if self._is_replaced() else grace_s)
        if attempt.desired.action == "stop":
            reason = attempt.desired.stop_reason or ReasonCode.USER
            if attempt.desired.keep and attempt.record.keep_failed_s:
                return StopRequest(reason.value, grace_s, _PEER_FAILED, keeps=True)
            return StopRequest(reason.value, grace_s)
        return None

    def _is_replaced(self) -> bool:
        return any(
            other.record.task_id == self._attempt.record.task_id
            and other.record.epoch > self._attempt.record.epoch
            for other in self._services.table
        )

    def _end_lost(self, observation: Observation) -> None:
        attempt = self._attempt
        request = self._pending_stop or self._stop_request()
        if request is not None:
            attempt.end(ReasonCode(request.reason), request.message)
        elif observation.out_of_memory:
            attempt.end(ReasonCode.OUT_OF_MEMORY, observation.detail)
        else:
            attempt.end(ReasonCode.SIGNAL, observation.detail)

    async def _wait_for_change(self, seen: int) -> None:
        """Wait for a notification, or until a second has passed."""
        await self._attempt.notifier.wait(seen, within_s=_LOOK_EVERY_S)


async def clear_folder(path: Path) -> None:
    """Delete the folder of an attempt. The next start of the agent retries failed deletions."""
    await asyncio.to_thread(remove_tree, path)
