"""Assembles the parts of an agent and runs them until a signal to stop."""

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import slipway
from slipway.schemas.workloads import ReasonCode
from workers import launcher
from workers.launcher.atomic_files import write_atomically
from workers.launcher.confinement import adopt_orphans
from workers.launcher.launch import StopRequest
from workers.launcher.lease import Lease
from workers.launcher.platform_programs import TRAINING
from workers.launcher.processes import uptime_s
from workers.node_agent.allocation import claim_slot
from workers.node_agent.attempts import AttemptTable
from workers.node_agent.backends.base import Backend, PreparedEnvironment
from workers.node_agent.backends.process import ProcessBackend
from workers.node_agent.backends.registry import backend_class, obstacle
from workers.node_agent.builds import EnvironmentBuilds
from workers.node_agent.builds_ahead import BuildsAhead
from workers.node_agent.checkpoint_uploader import CheckpointUploader
from workers.node_agent.checkpoints import CheckpointStore
from workers.node_agent.disk_guard import DiskGuard
from workers.node_agent.disk_limits import DiskLimits
from workers.node_agent.errors import AgentError, StartError
from workers.node_agent.folders import NodeFolders
from workers.node_agent.gpus import Gpus
from workers.node_agent.heartbeat import HeartbeatSender
from workers.node_agent.host_info import node_facts
from workers.node_agent.identity import become_node
from workers.node_agent.image_runtimes import ImageRunner
from workers.node_agent.interpreters import find_interpreters
from workers.node_agent.isolation import Isolation
from workers.node_agent.log_shipper import LogShipper
from workers.node_agent.notifier import Notifier
from workers.node_agent.portal import Portal
from workers.node_agent.reconciler import Reconciler
from workers.node_agent.relay import NodeRelay, served_by
from workers.node_agent.reporter import Reporter
from workers.node_agent.retention import prune_periodically
from workers.node_agent.runner import NodeServices
from workers.node_agent.sampler import Sampler
from workers.node_agent.settings import AgentSettings
from workers.node_agent.snapshots import SnapshotStore
from workers.node_agent.task_container import TaskContainer
from workers.node_agent.workspace_files import WorkspaceFiles

log = logging.getLogger(__name__)
_TEND_EVERY_S: Final = 1.0
_PYTHONS_EVERY_S: Final = 300.0
# Tasks of an agent that leaves nothing behind run again elsewhere.
_LEAVES: Final = StopRequest(ReasonCode.NODE_LOST.value, 5.0)
_MEND_S: Final = 1.0
_MOST_RINGS: Final = 256
_DEAF_S: Final = 0.01
_LOOK_AT_ENVIRONMENT_EVERY_S: Final = 60.0
_LOOK_AT_ALLOCATION_EVERY_S: Final = 5.0


class Agent:
    """One node. What it knows is on disk, so it may end at any moment and come back."""

    def __init__(self, settings: AgentSettings) -> None:
        self._settings = settings
        self._folders = _claim_folders(settings)
        self._container = (
            None if settings.task_container is None else TaskContainer.wait(settings.task_container)
        )
        self._runs_image = self._container is not None or settings.image is not None
        self._folders.prepare(
            launcher=Path(launcher.__path__[0]).resolve(),
            sdk=Path(slipway.__path__[0]).resolve(),
            copies=self._runs_image,
        )
        self._folders.connected.unlink(missing_ok=True)
        self._gpus = Gpus(self._container.gpus if self._container else None)
        self._portal = Portal(settings.url)
        self._table = AttemptTable(self._folders)
        self._notifier = Notifier()
        self._isolation = Isolation.measure(settings, self._folders)
        log.info("isolation of projects: %s. %s", self._isolation.level, self._isolation.detail)
        self._process = ProcessBackend(
            *(settings, self._folders, self._isolation),
            container=self._container,
            image=self._image_runner(),
        )
        self._backends = self._find_backends()
        self._disk = DiskLimits.of(settings, self._folders.root)
        self._facts = node_facts(settings, self._gpus, self._backends, self._disk)
        self._lease = Lease(self._folders.shared)
        self._shipper = LogShipper(self._portal, self._table, self._backends, self._notifier)
        self._heart = HeartbeatSender(
            *(self._portal, self._table, self._lease, lambda: self._facts),
            *(self._process.warm, self._folders),
        )
        self._builds = EnvironmentBuilds(self._portal, self._folders.root / "builds")
        self._default: PreparedEnvironment | None = None
        self._ahead: asyncio.Task[None] | None = None
        rooms = NodeServices(
            folders=self._folders,
            backends=self._backends,
            builds=self._builds,
            snapshots=SnapshotStore(self._folders, self._portal),
            checkpoints=CheckpointStore(self._folders, self._portal),
            lease=self._lease,
            table=self._table,
            notifier=self._notifier,
            address=self._facts.address,
            pass_env=settings.passed(),
        )
        files = WorkspaceFiles(self._portal, self._folders, self._isolation, self._disk)
        ahead = BuildsAhead(self._builds, self._backends, rooms.snapshots)
        self._reconciler = Reconciler(
            *(self._portal, rooms, self._shipper, self._gpus), files=files, builds_ahead=ahead
        )

    def _image_runner(self) -> ImageRunner | None:
        """Return what runs the task of the allocation in an image, None without one."""
        image, gpus = self._settings.image, bool(self._gpus.facts)
        if image is None:
            return None
        return ImageRunner(image, self._settings.data_dir, self._folders, gpus=gpus)

    def _find_backends(self) -> dict[str, Backend]:
        backends: dict[str, Backend] = {}
        obstacles = []
        for name in self._settings.backends:
            if reason := obstacle(name, self._settings):
                obstacles.append(reason)
                continue
            backend: Backend = self._process
            if name != self._process.name:
                backend = backend_class(name)(self._settings, self._folders, self._isolation)
            if backend.is_available():
                backends[name] = backend
        if not backends:
            raise AgentError(
                " ".join(
                    ("None of the requested back ends is available on this machine.", *obstacles)
                )
            )
        return backends

    async def run(self) -> None:
        """Run until SIGTERM or SIGINT. Raises AgentError when the node cannot become one."""
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        # Orphans of a killed shim are reparented to this process, which reaps them.
        adopt_orphans()
        # Tasks of an earlier agent are watched immediately, even while the portal is unreachable.
        self._reconciler.adopt()
        self._listen_to_shims(loop)
        work = asyncio.create_task(self._work())
        ends = {work, asyncio.create_task(stop.wait())}
        seat = self._settings.allocation
        if seat is not None:
            over = (self._reconciler.is_over, self._heart.is_removed)
            ends |= {asyncio.create_task(event.wait()) for event in over}
            ends.add(asyncio.create_task(self._wait_until_abandoned(seat.patience_s)))
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            work.result()
        if self._settings.stop_tasks_on_exit:
            await self._reconciler.stop_all(seat.stop_request if seat is not None else _LEAVES)
        work.cancel()
        with suppress(asyncio.CancelledError):
            await work
        self._process.close()
        if self._settings.stop_tasks_on_exit:
            self._folders.remove_sockets()
        await self._portal.close()

    async def _wait_until_abandoned(self, patience_s: float) -> None:
        """Wait until nothing has run here, and the portal has not answered, for that long."""
        idle_since_s = uptime_s()
        while min(uptime_s() - idle_since_s, self._heart.silent_s) < patience_s:
            await asyncio.sleep(min(_LOOK_AT_ALLOCATION_EVERY_S, patience_s))
            if any(not attempt.finished for attempt in self._table):
                idle_since_s = uptime_s()
        log.error("leaving the allocation: the portal has not answered for %.0f s", patience_s)

    async def _work(self) -> None:
        if self._settings.allocation is not None:
            # Kept, because a task that nobody refers to may be collected before its end.
            self._ahead = asyncio.create_task(self._warm_ahead())
        await self._find_pythons()
        await become_node(self._settings, self._folders, self._portal, self._facts)
        guard = DiskGuard(self._folders.root, self._disk, self._table, self._process.builds)
        reporter = Reporter(self._portal, self._table, self._notifier)
        sampler = Sampler(self._portal, self._table, self._gpus)
        parts: dict[str, Callable[[], Awaitable[None]]] = {
            "heartbeat": self._heart.run,
            "reports": reporter.run,
            "logs": self._shipper.run,
            "samples": sampler.run,
            "disk": guard.run,
            "checkpoints": CheckpointUploader(self._portal, self._table, self._folders).run,
            "desired state": self._follow,
            "sweeping": self._reconciler.sweep,
            "tending": self._maintain,
            "default environment": self._prepare_default_environment,
            "Pythons": self._follow_pythons,
            "retention": lambda: prune_periodically(self._folders, self._table),
            "relay": NodeRelay(
                self._portal,
                self._settings.url,
                served_by(self._table, self._folders, self._backends),
            ).run,
        }
        async with asyncio.TaskGroup() as group:
            for name, part in parts.items():
                group.create_task(_run_forever(name, part))

    async def _warm_ahead(self) -> None:
        """Start what jobs are forked from, before the agent has joined.

        An allocation is for one workload, which waits for it, and torch takes seconds to import.
        """
        if self._process.name not in self._backends or self._runs_image:
            return
        try:
            default = await self._builds.ensure(self._process, None, on_build=lambda: None)
        except StartError:
            return  # `_prepare_default_environment` says why
        self._process.warm.keep_warm(default.runtime, default.readable, [TRAINING])

    async def _find_pythons(self) -> None:
        """Look for the versions of Python that environments can be built with."""
        if self._settings.allocation is not None:
            return  # its one workload is placed whatever is here, and would wait for this
        if self._process.name not in self._backends:
            return  # containers have the Python of their image
        interpreters = await find_interpreters(str(self._settings.python or sys.executable))
        versions = sorted(interpreters, key=lambda version: int(version.partition(".")[2]))
        self._facts = self._facts.model_copy(update={"pythons": versions})

    async def _follow_pythons(self) -> None:
        """Look again from time to time, because an administrator may install one."""
        while True:
            await asyncio.sleep(_PYTHONS_EVERY_S)
            await self._find_pythons()

    async def _follow(self) -> None:
        await self._heart.first.wait()
        log.info("the node %s is connected to %s", self._settings.name, self._settings.url)
        write_atomically(self._folders.connected, f"{os.getpid()}\n")
        await self._reconciler.follow()

    async def _maintain(self) -> None:
        while True:
            if self._default is not None and not self._runs_image:
                default = self._default
                self._process.warm.keep_warm(
                    default.runtime, default.readable, self._reconciler.prewarm
                )
            self._process.maintain()
            with suppress(OSError):
                # Sign of life for the supervisor. The file exists once the node is connected.
                os.utime(self._folders.connected)
            await asyncio.sleep(_TEND_EVERY_S)

    async def _prepare_default_environment(self) -> None:
        """Prepare the default environment before the first task needs it."""
        while self._process.name in self._backends and self._settings.image is None:
            try:
                self._default = await self._builds.ensure(
                    self._process,
                    None,
                    on_build=lambda: log.info(
                        "building the default environment of jobs from %s: once, a few minutes",
                        self._settings.requirements,
                    ),
                )
            except StartError as error:
                log.warning("jobs without requirements cannot start on this node: %s", error)
            await asyncio.sleep(_LOOK_AT_ENVIRONMENT_EVERY_S)
        await asyncio.Event().wait()

    def _listen_to_shims(self, loop: asyncio.AbstractEventLoop) -> None:
        path = self._folders.notification_socket
        path.unlink(missing_ok=True)
        bell = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        bell.bind(str(path))
        # Supervisors in containers run as other users. They can only trigger a check.
        notified_by_others = any(
            backend.notifies_as_other_user for backend in self._backends.values()
        )
        path.chmod(0o666 if notified_by_others else 0o600)
        loop.add_reader(bell, self._on_notification, loop, bell)

    def _on_notification(self, loop: asyncio.AbstractEventLoop, bell: socket.socket) -> None:
        with suppress(BlockingIOError):
            for _ in range(_MOST_RINGS):
                bell.recv(64)
        self._notifier.notify()
        self._table.notify()
        # Any process may notify at any rate: the agent reacts a hundred times a second at most.
        loop.remove_reader(bell)
        loop.call_later(_DEAF_S, loop.add_reader, bell, self._on_notification, loop, bell)


def _claim_folders(settings: AgentSettings) -> NodeFolders:
    """Return the data folder, locked for this process. Raises AgentError."""
    if settings.allocation is not None:
        folders = claim_slot(settings.data_dir)
        # Of an earlier allocation, whose node is gone.
        folders.identity.unlink(missing_ok=True)
        folders.removed.unlink(missing_ok=True)
        return folders
    folders = NodeFolders(settings.data_dir)
    folders.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    folders.lock()
    return folders


async def _run_forever(name: str, part: Callable[[], Awaitable[None]]) -> None:
    """Run a part for ever: what goes wrong in one (a full disk, say) must not end the others."""
    while True:
        try:
            await part()
        except AgentError:
            raise
        except Exception:
            log.exception("%s failed and will be retried", name)
        await asyncio.sleep(_MEND_S)
