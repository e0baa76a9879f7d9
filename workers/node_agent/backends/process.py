"""Back end `process`: a shim and its ranks as processes of this machine.

What a rank reaches depends on the isolation level of the node (`workers.node_agent.isolation`): a
sandbox of namespaces where the kernel permits it, else a Unix user for each project, else Landlock.
"""

import asyncio
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

from slipway.schemas.agent import EnvironmentSpec, IsolationFacts, TaskSpec
from slipway.schemas.workloads import ReasonCode
from workers.launcher.atomic_files import read_json, write_atomically
from workers.launcher.cgroup import Cgroup, CgroupLimits, CgroupParent
from workers.launcher.confinement import Confinement
from workers.launcher.journal import Journal
from workers.launcher.launch import Launch, SandboxBoundary, StateFolder, StopRequest
from workers.launcher.logs import Chunk, read_chunk
from workers.launcher.platform_programs import READABLE_PACKAGES
from workers.launcher.processes import (
    ProcessMark,
    boot_id,
    kill_marked,
    send,
)
from workers.launcher.rank_env import cold_start_variable
from workers.launcher.service_forwarder import Service
from workers.launcher.task_socket import VARIABLE
from workers.node_agent.backends.base import (
    BuildLog,
    LaunchSpec,
    Observation,
    Phase,
    PreparedEnvironment,
    TaskCode,
)
from workers.node_agent.backends.task_sockets import dashboard_path, listen_path
from workers.node_agent.build_disk import BuildDisk
from workers.node_agent.disk_limits import DiskLimits
from workers.node_agent.environments import VirtualEnvironments, default_environment
from workers.node_agent.errors import StartError
from workers.node_agent.folders import NodeFolders, TaskFolder, handle_of
from workers.node_agent.image_runtimes import ImageRunner
from workers.node_agent.interpreters import places_of_environment
from workers.node_agent.isolation import Isolation
from workers.node_agent.leftovers import remove_leftovers
from workers.node_agent.orphans import OrphanReaper
from workers.node_agent.ownership import chown_tree
from workers.node_agent.package_archives import FetchArchive, no_archives
from workers.node_agent.settings import AgentSettings
from workers.node_agent.short_paths import remove_short_link, short_link
from workers.node_agent.task_container import TaskContainer
from workers.node_agent.warm_pool import CannotFork, WarmPool, boot

log = logging.getLogger(__name__)
_CLAIM_WITHIN_S: Final = 10.0
_GROUPS: Final = "cgroup.json"
_SWEEPS: Final = 50


class ProcessBackend:
    """Runs each task through a shim, warm if a warm process is available."""

    name = "process"
    notifies_as_other_user = False

    def __init__(
        self,
        settings: AgentSettings,
        folders: NodeFolders,
        isolation: Isolation | None = None,
        *,
        container: TaskContainer | None = None,
        image: ImageRunner | None = None,
    ) -> None:
        """Start shims on this machine, or one in a container: of this pod, or of an image."""
        self._settings = settings
        self._container = container
        self._is_in_pod = container is not None
        self._image = image
        self._folders = folders
        self._isolation = isolation or Isolation.none()
        self._disk = DiskLimits.of(settings, folders.root)
        self._environments = VirtualEnvironments(settings, folders, self._isolation)
        self._cgroups = CgroupParent.find() if settings.cgroups else CgroupParent.none()
        self._started: dict[str, subprocess.Popen[bytes]] = {}
        self._strays = OrphanReaper()
        home = folders.root / "warm"
        home.mkdir(mode=0o700, exist_ok=True)
        self.warm = WarmPool(
            folders.code,
            home,
            folders.sdk,
            limit=settings.warm_limit,
            confinement=self._outer() if self._isolation.level == "shared" else None,
            only_trusted=self._isolation.level != "none",
            environment=settings.passed(),
        )
        if not self._cgroups.limits_memory:
            log.info("no memory cgroups: limits are enforced by polling, within about a second")

    def is_available(self) -> bool:
        """Return True: every machine has processes."""
        return True

    def isolation_facts(self) -> IsolationFacts:
        """Return the isolation of projects as it was measured when the agent started."""
        return self._isolation.facts(self.name)

    def _outer(self) -> Confinement:
        """Return the confinement of all tasks together. Each task then restricts itself further."""
        folders = self._folders
        sockets = (folders.contacts, folders.listeners)
        writable = (folders.tasks, folders.persistent, folders.cache, *sockets)
        readable = (self._folders.shared, *self._code_places())
        return Confinement(
            (*map(str, writable), *self._cgroups.folders()),
            (*map(str, readable), *self._settings.readable),
        )

    def _code_places(self) -> tuple[Path, ...]:
        parts = (self._folders.code / "workers" / name for name in READABLE_PACKAGES)
        links = (*parts, self._folders.sdk / "slipway")
        return (self._folders.code, self._folders.sdk, *(link.resolve() for link in links))

    def check(self, spec: TaskSpec) -> None:
        """Accept every task: a sandbox enforces the network rule, or the portal knows better."""

    async def prepare(
        self,
        spec: EnvironmentSpec | None,
        log: BuildLog,
        project: str | None = None,
        _code: TaskCode | None = None,
        fetch: FetchArchive = no_archives,
    ) -> PreparedEnvironment:
        """Build the virtual environment. None stands for the default environment."""
        if self._image is not None:
            self._container = await self._image.start(log)
        if (container := self._container) is not None:
            return PreparedEnvironment(
                container.python, readable=container.readable, variables=container.variables
            )
        if spec is not None and spec.dockerfile:
            raise StartError(
                "The environment is an image of a Dockerfile, which needs the back end docker.",
                ReasonCode.ENVIRONMENT_FAILED,
            )
        if spec is not None:
            return await self._environments.ensure(spec, log, project, fetch)
        python = self._settings.python
        if python is not None:
            prepared = PreparedEnvironment(
                str(python), readable=await places_of_environment(python)
            )
        else:
            # Shared by all projects, so built from wheels only.
            spec = default_environment(self._settings.requirements)
            prepared = await self._environments.ensure(spec, log)
        self.warm.trust(prepared.runtime)
        return prepared

    async def start(self, order: LaunchSpec) -> str:
        """Start the shim. It has claimed the task by the time this returns."""
        handle = handle_of(order.key)
        state = StateFolder(order.folder.state)
        if state.shim() is not None:
            return handle
        try:
            launch = await asyncio.to_thread(self._launch, order)
        except OSError as error:
            raise StartError(f"The task's folder could not be created: {error}.") from error
        flavour = order.spec.warm
        if flavour is not None and self._container is None:
            # Warm processes have those of the node already.
            of_node = self._settings.passed().items()
            of_environment = dict((order.environment or {}).items() - of_node)
            obstacle = cold_start_variable({**of_environment, **order.spec.env})
            try:
                if obstacle:
                    raise CannotFork(f"{obstacle} is read when Python or torch start")
                await self.warm.fork(launch, flavour)
            except CannotFork as error:
                launch = replace(launch, cold_reason=str(error))
            else:
                await self._wait_for_claim(state, launch, within_s=_CLAIM_WITHIN_S)
                return handle
        await self._start_cold(handle, launch)
        return handle

    def _launch(self, order: LaunchSpec) -> Launch:
        spec, folder = order.spec, order.folder
        limits = CgroupLimits(
            spec.resources.memory_bytes,
            spec.resources.cpu_millis,
            # The first process of a sandbox must outlive the ranks of a task that is kept.
            is_killed_whole=not spec.keep_failed_s,
        )
        # Several agents of one machine create their groups in the same parent.
        group = f"{self._folders.mark}-{handle_of(order.key)}"
        # The limits of another container are those that it was given.
        cgroup = Cgroup() if self._container else self._cgroups.create(group, limits)
        write_atomically(folder.path / _GROUPS, json.dumps(asdict(cgroup)))
        contact = self._folders.contact(handle_of(order.key))
        contact.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        user = self._isolation.user_of(order.project)
        if user is not None:
            # Users other than the owner can only reach the socket in it by its exact name.
            contact.parent.chmod(0o711)
            folder.path.chmod(0o711)
            for path in order.own_folders:
                chown_tree(path, user.uid, user.gid)
            # The project's folder, in which its tasks reach their own folders by name.
            order.persistent.parent.chmod(0o711)
        return Launch(
            task_id=order.key.task_id,
            workload_id=order.workload_id,
            epoch=order.key.epoch,
            argv=tuple(spec.argv),
            env={**(order.environment or {}), **spec.env},
            python=order.runtime,
            root=str(self._folders.code),
            sdk_dir=str(self._folders.sdk),
            state_dir=str(folder.state),
            work_dir=str(folder.work),
            home_dir=str(folder.home),
            tmp_dir=(self._container and self._container.tmp) or str(folder.tmp),
            tmp_link=self._short_tmp(folder),
            persistent_dir=str(order.persistent),
            cache_dir=str(order.cache) if order.cache else "",
            personal_dir=str(order.personal) if order.personal else "",
            shared_dir=str(self._folders.shared),
            bell_path=str(self._folders.notification_socket),
            contact_path=str(contact),
            address=order.address,
            memory_bytes=spec.resources.memory_bytes,
            cpu_millis=spec.resources.cpu_millis,
            disk_bytes=self._disk.task_bytes,
            disk_reserve_bytes=self._disk.reserve_bytes,
            procs=spec.procs,
            world_size=spec.world_size,
            first_rank=spec.first_rank,
            gpus=order.gpus,
            cgroup=cgroup,
            in_container=self._is_in_pod,
            confined=SandboxBoundary(
                level=self._isolation.level,
                readable=(*self._settings.readable, *order.readable),
                hidden=self._isolation.hidden,
                uid=user.uid if user else None,
                gid=user.gid if user else None,
                offline=self._is_offline(spec),
                services=tuple(Service(item.host, item.port) for item in spec.services),
            ),
            hang_after_s=spec.hang_after_s,
            keep_on_fence=spec.keep_on_fence,
            log_bound_bytes=self._settings.log_bound_bytes,
            keep=tuple(spec.keep),
            keep_limit_bytes=spec.keep_limit_bytes,
            framework=spec.framework or "",
            listen_path=listen_path(order, self._folders, self._settings.allocation),
            shell_path=str(self.shell_socket(handle_of(order.key))) if spec.shells else "",
            dashboard_path=dashboard_path(order, self._folders),
            keep_failed_s=spec.keep_failed_s if spec.shells else 0.0,
            engine_grace_s=self._engine_grace_s(spec),
        )

    def _engine_grace_s(self, spec: TaskSpec) -> float:
        """Return what a task may take to save when the engine of its allocation ends it."""
        seat = self._settings.allocation
        return 0.0 if seat is None else max(0.1, min(spec.stop_grace_s, seat.grace_s))

    def _short_tmp(self, folder: TaskFolder) -> str:
        """A short path of TMPDIR. A sandbox shows it as /tmp anyway."""
        if self._container is not None:
            return ""  # a link here would not be there
        if self._isolation.level == "namespaces":
            return "/tmp"  # noqa: S108 - the sandbox's own
        return short_link(folder.tmp)

    def _is_offline(self, spec: TaskSpec) -> bool:
        if spec.network == "open":
            return False
        if "network" not in self._isolation.features:
            raise StartError(
                "The project's network rule allows only the platform, but this node cannot "
                "block network access. Use a node whose isolation lists the feature network."
            )
        return True

    async def _start_cold(self, handle: str, launch: Launch) -> None:
        data = launch.to_json().encode()
        try:
            if self._container is not None:
                log_file = launch.folder.shim_log
                await asyncio.to_thread(self._container.start, self._shim_argv(), data, log_file)
            else:
                process = self._spawn_shim(launch)
                self._started[handle] = process
                # A large launch exceeds a pipe's buffer. The shim reads immediately.
                await asyncio.to_thread(_send_launch, process, data)
        except OSError as error:
            raise StartError(
                f"The task's supervisor rejected its start message: {error}."
            ) from error
        await self._wait_for_claim(launch.folder, launch, within_s=_CLAIM_WITHIN_S)

    def _spawn_shim(self, launch: Launch) -> subprocess.Popen[bytes]:
        with launch.folder.shim_log.open("ab") as shim_log:
            return subprocess.Popen(
                [sys.executable, *self._shim_argv()],
                env={"LANG": "C.UTF-8"},
                cwd="/",
                stdin=subprocess.PIPE,
                stdout=shim_log,
                stderr=shim_log,
                start_new_session=True,
            )

    def _shim_argv(self) -> list[str]:
        return ["-I", "-S", "-c", boot("shim", isolated=True), str(self._folders.code)]

    async def _wait_for_claim(self, state: StateFolder, launch: Launch, *, within_s: float) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within_s
        journal = Journal(state.journal)
        while state.shim() is None and not journal.has_ended():
            if loop.time() > deadline:
                line = _last_line(state.shim_log)
                raise StartError(
                    f"The supervisor of {launch.task_id} did not start. {line}".strip()
                )
            await asyncio.sleep(0.002)

    async def phase(self, handle: str) -> Observation:
        """Determine the phase from the claim and the journal.

        The pid alone does not identify a shim.
        """
        self._collect()
        folder = self._folder(handle)
        state = StateFolder(folder.state)
        # Check the process before the journal, so that an end written in between is not missed.
        mark = state.shim()
        alive = mark is not None and mark.is_alive()
        if Journal(state.journal).has_ended():
            return Observation(Phase.ENDED)
        if alive:
            return Observation(Phase.RUNNING)
        if mark is None:
            return Observation(Phase.LOST, "It never started.", never_started=True)
        return Observation(Phase.LOST, *self._post_mortem(mark, folder))

    def _post_mortem(self, mark: ProcessMark, folder: TaskFolder) -> tuple[str, bool]:
        if mark.boot != boot_id():
            return "The machine was restarted while the task ran.", False
        if self._groups(folder).oom_kills():
            return "The kernel killed the task's supervisor because memory ran out.", True
        line = _last_line(StateFolder(folder.state).shim_log)
        ended = "The task's supervisor was killed, and its ranks with it."
        return f"{ended} {line}".strip(), False

    async def stop(self, handle: str, request: StopRequest) -> None:
        """Write the stop request to the task's folder and wake its shim."""
        state = StateFolder(self._folder(handle).state)
        mark = state.shim()
        if mark is None or not mark.is_alive():
            return
        with suppress(OSError):
            state.request_stop(request)
        _signal_exactly(mark, signal.SIGTERM)

    async def remove(self, handle: str) -> None:
        """Kill the shim, its ranks (by the kernel), and any process that escaped both."""
        await asyncio.to_thread(self.remove_now, handle)
        self._collect()

    def remove_now(self, handle: str) -> None:
        """Kill everything that belongs to the task, synchronously."""
        folder = self._folder(handle)
        mark = StateFolder(folder.state).shim()
        if mark is not None:
            _signal_exactly(mark, signal.SIGKILL)
        self._sweep(self._groups(folder), folder)
        if self._isolation.level == "users":
            with suppress(OSError):
                remove_leftovers(folder.work.stat().st_uid)

    def _sweep(self, group: Cgroup, folder: TaskFolder) -> None:
        group.kill()
        contact = self._folders.contact(folder.path.name)
        marker = f"{VARIABLE}={contact}".encode()
        for _ in range(_SWEEPS):
            if not kill_marked(marker):
                break
            time.sleep(0.02)
        group.remove()
        shutil.rmtree(contact.parent, ignore_errors=True)
        with suppress(OSError):
            self._folders.listener(folder.path.name).unlink(missing_ok=True)
        remove_short_link(folder.tmp)

    def shell_socket(self, handle: str) -> Path:
        """Return the socket in a folder that no task can open."""
        return self._folders.shell(handle)

    async def logs(self, handle: str, rank: int, offset: int, limit: int) -> Chunk:
        """Read from the segments the shim writes."""
        return read_chunk(StateFolder(self._folder(handle).state).logs(rank), offset, limit)

    def _folder(self, handle: str) -> TaskFolder:
        return self._folders.task(handle)

    def _groups(self, folder: TaskFolder) -> Cgroup:
        document = read_json(folder.path / _GROUPS)
        return Cgroup() if document is None else Cgroup.from_json(document)

    def builds(self) -> Collection[BuildDisk]:
        """The steps of builds that run now."""
        return self._environments.builds()

    def maintain(self) -> None:
        """Once a second: keep warm what should be, collect what ended, also what came to us."""
        self.warm.maintain()
        self._collect()
        self._strays.collect()

    def close(self) -> None:
        """Close the warm processes. Tasks continue to run."""
        self.warm.close()
        if self._image is not None:
            self._image.close()

    def _collect(self) -> None:
        for handle, process in list(self._started.items()):
            if process.poll() is not None:
                del self._started[handle]


def _send_launch(process: subprocess.Popen[bytes], launch: bytes) -> None:
    assert process.stdin is not None  # noqa: S101 - a pipe, see above
    with process.stdin:
        process.stdin.write(launch)


def _signal_exactly(mark: ProcessMark, number: signal.Signals) -> None:
    """Signal this very process: a descriptor cannot come to mean another one, a pid can."""
    try:
        descriptor = os.pidfd_open(mark.pid)
    except OSError:
        return
    try:
        if mark.is_alive():
            signal.pidfd_send_signal(descriptor, number)
    except OSError:
        send(mark.pid, number)
    finally:
        os.close(descriptor)


def _last_line(path: Path) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            file.seek(max(0, os.fstat(descriptor).st_size - 4096))
            lines = file.read().decode("utf-8", errors="replace").split("\n")
    except OSError:
        return ""
    items = [line.strip() for line in lines if line.strip()]
    return items[-1] if items else ""
