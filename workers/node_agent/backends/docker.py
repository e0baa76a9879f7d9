"""Back end `docker`: a shim and its ranks in a container with minimal privileges.

The shim is the container's first process, so killing it ends everything inside. It writes the same
files as outside, into a mounted folder of the task. For the agent both back ends look alike, except
that user code may have written those files, so they are read defensively.
"""

import asyncio
import logging
import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from slipway.bundled_packages import folder_in
from slipway.schemas.agent import EnvironmentSpec, IsolationFacts, TaskSpec
from workers.launcher.journal import Journal
from workers.launcher.launch import Launch, SandboxBoundary, StateFolder, StopRequest
from workers.launcher.logs import Chunk, read_chunk
from workers.node_agent.backends.base import (
    BuildLog,
    LaunchSpec,
    Observation,
    Phase,
    PreparedEnvironment,
    TaskCode,
)
from workers.node_agent.backends.engine import Engine, EngineError
from workers.node_agent.backends.image_records import ImageRecord, ImageRecords
from workers.node_agent.backends.images import INTERPRETER, ImageStore
from workers.node_agent.backends.project_images import ProjectImages
from workers.node_agent.disk_limits import DiskLimits
from workers.node_agent.environments import default_environment
from workers.node_agent.errors import StartError
from workers.node_agent.folders import NodeFolders, TaskFolder, checked_name, handle_of
from workers.node_agent.isolation import Isolation, ProjectUser
from workers.node_agent.ownership import chown_tree
from workers.node_agent.package_archives import FetchArchive, no_archives
from workers.node_agent.settings import AgentSettings
from workers.node_agent.warm_pool import boot

log = logging.getLogger(__name__)
_NOBODY: Final = 65_534
_MAX_PROCESSES: Final = 4096
_CODE: Final = "/slipway/code"
_STATE: Final = "/slipway/state"
_WORK: Final = "/slipway/work"
_HOME: Final = "/slipway/home"
_SHARED: Final = "/slipway/shared"
_PERSISTENT: Final = "/slipway/persistent"
_CACHE: Final = "/slipway/cache"
_PERSONAL: Final = "/slipway/personal"
_SDK: Final = "/slipway/sdk"
_TMP: Final = "/tmp"  # noqa: S108 - in the container's own file system
_LABEL: Final = "slipway.attempt"
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409


class DockerBackend:
    """Runs tasks in containers of a Docker Engine on this machine."""

    name = "docker"
    # Shims in containers run as other users.
    notifies_as_other_user = True

    def __init__(
        self, settings: AgentSettings, folders: NodeFolders, isolation: Isolation | None = None
    ) -> None:
        self._settings = settings
        self._folders = folders
        self._isolation = isolation or Isolation.none()
        self._disk = DiskLimits.of(settings, folders.root)
        self._engine = Engine(settings.docker_socket)
        self._images = ImageStore(self._engine, settings.docker_image)
        self._records = ImageRecords(folders.images)
        self._project_images = ProjectImages(
            self._engine, self._records, self._disk, settings.registry_auth
        )

    def is_available(self) -> bool:
        """Return whether a Docker engine responds."""
        try:
            self._engine.probe()
        except EngineError as error:
            log.warning("this node offers no containers: %s", error)
            return False
        return True

    def isolation_facts(self) -> IsolationFacts:
        """Return what Docker grants every container."""
        features = ["mount", "pid", "ipc", "seccomp"]
        return IsolationFacts(backend=self.name, level="containers", features=features)

    def check(self, spec: TaskSpec) -> None:
        """Raise StartError for a task without network: builds and containers have one."""
        if spec.network != "open":
            raise StartError(
                "The project's network rule allows only the platform, but containers on this "
                "node can reach more. Use the back end process on a node whose isolation lists "
                "the feature network."
            )

    async def prepare(
        self,
        spec: EnvironmentSpec | None,
        log: BuildLog,
        project: str | None = None,
        code: TaskCode | None = None,
        fetch: FetchArchive = no_archives,
    ) -> PreparedEnvironment:
        """Build the image of the environment. None stands for the default environment."""
        if spec is not None and spec.dockerfile:
            user = self._user(project or "")
            return await self._project_images.ensure(
                spec, log, project, code, f"{user.uid}:{user.gid}"
            )
        if spec is None:
            default = default_environment(self._settings.requirements)
            return PreparedEnvironment(await self._images.ensure(default, log))
        return PreparedEnvironment(await self._images.ensure(spec, log, project, fetch))

    async def start(self, order: LaunchSpec) -> str:
        """Create and start the container. The launch is passed by standard input only."""
        handle = handle_of(order.key)
        self.check(order.spec)
        try:
            if not await self._exists(handle):
                # Only before the first start: afterwards user code may have changed the folders.
                await asyncio.to_thread(self._chown_folders, order)
                network = await self._network(order.workload_id)
                await self._create(handle, order, network)
            if (await self._container(handle))["State"]["Status"] == "created":
                launch = self._launch(order).to_json().encode()
                await self._engine.start_with_input(self._container_name(handle), launch)
        except EngineError as error:
            raise StartError(f"The container could not be started: {error}.") from error
        return handle

    async def _exists(self, handle: str) -> bool:
        try:
            await self._container(handle)
        except EngineError as error:
            if error.status == _NOT_FOUND:
                return False
            raise
        return True

    def _container_name(self, handle: str) -> str:
        return f"slipway-{self._settings.name}-{handle}"

    def _chown_folders(self, order: LaunchSpec) -> None:
        """Make the task's folders writable for the user inside."""
        if os.getuid() == 0:
            user = self._user(order.project)
            for place in (order.folder.state, *order.own_folders):
                chown_tree(place, user.uid, user.gid)

    def _user(self, project: str) -> ProjectUser:
        """Return the user inside the container: the project's, or ours if the agent is not root."""
        user = self._isolation.user_of(project)
        if user is not None:
            return user
        is_root = os.getuid() == 0
        return ProjectUser(_NOBODY, _NOBODY) if is_root else ProjectUser(os.getuid(), os.getgid())

    async def _network(self, workload_id: str) -> str:
        """A network of the workload's own: its tasks here reach each other, others do not."""
        name = f"slipway-{checked_name(workload_id, 'workload id')}"
        try:
            await self._engine.call(
                lambda docker: docker.create_network(name, check_duplicate=True)
            )
        except EngineError as error:
            if error.status != _CONFLICT:
                raise
        return name

    async def _create(self, handle: str, order: LaunchSpec, network: str) -> None:
        description = self._description(handle, order, network)
        try:
            await self._engine.call(
                lambda docker: docker.create_container_from_config(
                    description, self._container_name(handle)
                )
            )
        except EngineError as error:
            if error.status != _CONFLICT:  # a concurrent call for the same handle was faster
                raise

    def _description(self, handle: str, order: LaunchSpec, network: str) -> dict[str, Any]:
        user = self._user(order.project)
        image = self._records.read(order.runtime)
        python = image.python if image else INTERPRETER
        return {
            "Image": image.image if image else order.runtime,
            "Entrypoint": [python, "-I", "-S", "-c", boot("shim", isolated=True), _CODE],
            "Cmd": [],
            "User": f"{user.uid}:{user.gid}",
            "WorkingDir": "/",
            # Of the image's own, an nvidia runtime would grant cards that the task does not have.
            "Env": ["LANG=C.UTF-8", f"NVIDIA_VISIBLE_DEVICES={','.join(order.gpus) or 'void'}"],
            "Healthcheck": {"Test": ["NONE"]},
            "Labels": {_LABEL: handle},
            "OpenStdin": True,
            "StdinOnce": True,
            "StopSignal": "SIGTERM",
            "HostConfig": self._host_config(order, network, image),
        }

    def _host_config(
        self, order: LaunchSpec, network: str, image: ImageRecord | None
    ) -> dict[str, Any]:
        resources = order.spec.resources
        launcher = (self._folders.code / "workers" / "launcher").resolve()
        sdk = (self._folders.sdk / "slipway").resolve()
        bundled = folder_in(self._folders.sdk).parent
        mounts = [
            _mount(order.folder.state, _STATE),
            _mount(order.folder.work, _WORK),
            _mount(order.folder.home, _HOME),
            _mount(order.persistent, _PERSISTENT),
            _mount(self._folders.shared, _SHARED, read_only=True),
            _mount(launcher, f"{_CODE}/workers/launcher", read_only=True),
            _mount(sdk, f"{_SDK}/slipway", read_only=True),
            _mount(bundled, f"{_SDK}/{bundled.name}", read_only=True),
        ]
        if order.cache is not None:
            mounts.append(_mount(order.cache, _CACHE))
        if order.personal is not None:
            mounts.append(_mount(order.personal, _PERSONAL))
        in_memory = f"nosuid,nodev,mode=1777,size={resources.memory_bytes // 2}"
        # Volumes of an image would be folders of the node without a limit.
        volumes = dict.fromkeys(image.volumes if image else (), f"rw,{in_memory}")
        cards = {
            "Driver": "nvidia",
            "DeviceIDs": list(order.gpus),
            "Capabilities": [["gpu"]],
        }
        return {
            "Mounts": mounts,
            "NetworkMode": network,
            "ReadonlyRootfs": True,
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges"],
            "Privileged": False,
            "IpcMode": "private",
            "CgroupnsMode": "private",
            "PidsLimit": _MAX_PROCESSES,
            "Memory": resources.memory_bytes,
            "MemorySwap": resources.memory_bytes,
            "NanoCpus": resources.cpu_millis * 1_000_000,
            "ShmSize": max(resources.memory_bytes // 2, 64 << 20),
            "Tmpfs": {**volumes, _TMP: f"rw,exec,{in_memory}"},
            "Ulimits": [{"Name": "core", "Soft": 0, "Hard": 0}],
            "RestartPolicy": {"Name": "no"},
            "LogConfig": {"Type": "json-file", "Config": {"max-size": "1m", "max-file": "1"}},
            "DeviceRequests": [cards] if order.gpus else [],
        }

    def _launch(self, order: LaunchSpec) -> Launch:
        spec = order.spec
        image = self._records.read(order.runtime)
        of_image = image.environment if image else {}
        return Launch(
            task_id=order.key.task_id,
            workload_id=order.workload_id,
            epoch=order.key.epoch,
            argv=tuple(spec.argv),
            env={**of_image, **(order.environment or {}), **spec.env},
            python=image.python if image else INTERPRETER,
            root=_CODE,
            sdk_dir=_SDK,
            state_dir=_STATE,
            work_dir=_WORK,
            home_dir=_HOME,
            tmp_dir=_TMP,
            persistent_dir=_PERSISTENT,
            cache_dir=_CACHE if order.cache else "",
            personal_dir=_PERSONAL if order.personal else "",
            shared_dir=_SHARED,
            bell_path=f"{_SHARED}/bell",
            contact_path=f"{_STATE}/contact",
            address=order.address,
            memory_bytes=spec.resources.memory_bytes,
            cpu_millis=spec.resources.cpu_millis,
            disk_bytes=self._disk.task_bytes,
            disk_reserve_bytes=self._disk.reserve_bytes,
            procs=spec.procs,
            world_size=spec.world_size,
            first_rank=spec.first_rank,
            gpus=tuple(map(str, range(len(order.gpus)))),
            # The container is the confinement, and the engine enforces its limits.
            confined=SandboxBoundary(level="container"),
            in_container=True,
            hang_after_s=spec.hang_after_s,
            keep_on_fence=spec.keep_on_fence,
            log_bound_bytes=self._settings.log_bound_bytes,
            keep=tuple(spec.keep),
            keep_limit_bytes=spec.keep_limit_bytes,
            framework=spec.framework or "",
            shell_path=f"{_STATE}/{order.folder.shell.name}" if spec.shells else "",
            keep_failed_s=spec.keep_failed_s if spec.shells else 0.0,
        )

    async def phase(self, handle: str) -> Observation:
        """Ask the engine, and the journal for how it ended."""
        folder = self._folder(handle)
        try:
            state = (await self._container(handle))["State"]
        except EngineError as error:
            return self._without_container(error, folder)
        # Check the container before the journal, so that an end written in between is not missed.
        if Journal(StateFolder(folder.state).journal).has_ended():
            return Observation(Phase.ENDED)
        if state["Status"] == "created":
            return Observation(Phase.LOST, "It never started.", never_started=True)
        if state["Running"]:
            return Observation(Phase.RUNNING)
        if state.get("OOMKilled"):
            return Observation(
                Phase.LOST,
                "The kernel killed the container because it ran out of memory.",
                out_of_memory=True,
            )
        message = f" with status {state.get('ExitCode')}"
        return Observation(Phase.LOST, f"The container ended{message} without a reason.")

    def _without_container(self, error: EngineError, folder: TaskFolder) -> Observation:
        state = StateFolder(folder.state)
        if Journal(state.journal).has_ended():
            return Observation(Phase.ENDED)
        if error.status != _NOT_FOUND:
            # The engine is temporarily unavailable, but its containers may be alive.
            log.warning("the engine does not respond: %s", error)
            return Observation(Phase.RUNNING)
        if state.shim() is None:
            return Observation(Phase.LOST, "It never started.", never_started=True)
        return Observation(Phase.LOST, "The container no longer exists.")

    async def stop(self, handle: str, request: StopRequest) -> None:
        """Write the stop request to the task's folder and wake the shim."""
        state = StateFolder(self._folder(handle).state)
        with suppress(OSError):
            state.request_stop(request)
            if not os.getuid():
                # The owner of the folder in the container must be able to read the file.
                owner = state.path.stat()
                os.chown(state.stop, owner.st_uid, owner.st_gid, follow_symlinks=False)
        with suppress(EngineError):
            await self._engine.call(
                lambda docker: docker.kill(self._container_name(handle), "SIGTERM")
            )

    async def remove(self, handle: str) -> None:
        """Kill and delete the container, and its network when it was the last one in it."""
        networks: list[str] = []
        with suppress(EngineError):
            container = await self._container(handle)
            networks = list(container["NetworkSettings"]["Networks"])
        with suppress(EngineError):
            name = self._container_name(handle)
            await self._engine.call(
                lambda docker: docker.remove_container(name, v=True, force=True)
            )
        for network in networks:
            if network.startswith("slipway-"):
                with suppress(EngineError):  # still in use by another task of the workload
                    await self._engine.call(partial(_remove_network, network))

    def shell_socket(self, handle: str) -> Path:
        """Return the socket in the state folder, which the container has, too."""
        return self._folder(handle).shell

    async def logs(self, handle: str, rank: int, offset: int, limit: int) -> Chunk:
        """Read from the segments the shim writes."""
        return read_chunk(StateFolder(self._folder(handle).state).logs(rank), offset, limit)

    async def _container(self, handle: str) -> dict[str, Any]:
        container: dict[str, Any] = await self._engine.call(
            lambda docker: docker.inspect_container(self._container_name(handle))
        )
        return container

    def _folder(self, handle: str) -> TaskFolder:
        return self._folders.task(handle)


def _remove_network(name: str, docker: Any) -> None:
    docker.remove_network(name)


def _mount(source: Path, target: str, *, read_only: bool = False) -> dict[str, Any]:
    return {"Type": "bind", "Source": str(source), "Target": target, "ReadOnly": read_only}
