"""Images of projects' Dockerfiles: built once, for one project, from the code of a task.

A Dockerfile is hostile. Its commands run in containers of the engine with the memory and CPUs of
the task, a limit of processes and a network of their own; what they write is measured. Nothing of
the node is mounted, and no password of the agent's user travels.
"""

import asyncio
import hashlib
import ipaddress
import logging
import re
import secrets
import shutil
import socket
import tarfile
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import IO, Any, Final

from docker.utils.build import exclude_paths

from slipway.requirement_files.dockerfile import (
    Dockerfile,
    DockerfileRefused,
    parse_dockerfile,
)
from slipway.schemas.agent import EnvironmentSpec
from slipway.schemas.workloads import ReasonCode
from workers.node_agent.backends.base import BuildLog, PreparedEnvironment, TaskCode
from workers.node_agent.backends.build_progress import BuildProgress
from workers.node_agent.backends.engine import BuildLimits, Engine, EngineError
from workers.node_agent.backends.image_records import ImageRecord, ImageRecords
from workers.node_agent.backends.registry_push import RegistryPush
from workers.node_agent.build_steps import build_variables
from workers.node_agent.disk_limits import DiskLimits
from workers.node_agent.errors import StartError
from workers.node_agent.folders import checked_digest

log = logging.getLogger(__name__)
REPOSITORY: Final = "slipway-project-image"
# In the context, so that no file of the project has the name.
_DOCKERFILE: Final = ".slipway-dockerfile"
_IGNORED: Final = ".dockerignore"
_BUILD_WITHIN_S: Final = 3600.0
_PROBE_WITHIN_S: Final = 60
_WATCH_EVERY_S: Final = 2.0
_MAX_PROCESSES: Final = 4096
_LEAST_CPU_MILLIS: Final = 100
_OLDEST_PYTHON: Final = (3, 11)
_NOT_FOUND: Final = 404
_IN_USE: Final = (403, 409)
_REMOVALS: Final = 100
_REMOVE_EVERY_S: Final = 0.2
_LABEL: Final = "slipway.build-network"
_PYTHONS: Final = ("python3", "python")
_PROBE: Final = "import sys; print(*sys.version_info[:2], sys.executable)"
_PROBED = re.compile(r"(\d+) (\d+) (/[A-Za-z0-9._/+-]{1,200})")
_PASSWORD = re.compile(r"//[^/@\s]+@")
# They name files of the node, which an image does not have.
_OF_THE_NODE = re.compile(r"PIP_(?:CERT|CLIENT_CERT|CONFIG_FILE|CACHE_DIR)|.*_(?:FILE|DIR|BUNDLE)")


class ProjectImages:
    """The images of Dockerfiles on one engine."""

    def __init__(
        self,
        engine: Engine,
        records: ImageRecords,
        disk: DiskLimits,
        accounts: Path | None = None,
    ) -> None:
        """`accounts` is a file like Docker's `config.json`, to push images with."""
        self._engine = engine
        self._push = RegistryPush(engine, accounts)
        self._records = records
        self._disk = disk

    async def ensure(
        self,
        spec: EnvironmentSpec,
        build_log: BuildLog,
        project: str | None,
        code: TaskCode | None,
        user: str,
    ) -> PreparedEnvironment:
        """Return the image, built now if it is not there. Raises StartError.

        `user` runs tasks of the project in it.
        """
        digest = checked_digest(spec.digest, "environment")
        if project is None or code is None:
            raise _failed("it is built from the code of a job, when the job starts")
        scope = hashlib.sha256(project.encode()).hexdigest()[:16]
        tag = f"{REPOSITORY}:{digest[:48]}-{scope}"
        record = self._records.read(tag)
        try:
            if record is not None and await self._exists(record.image):
                self._records.touch(tag)
                return await self._prepared(record, tag, code, build_log)
            async with asyncio.timeout(_BUILD_WITHIN_S):
                record = await self._build(spec, build_log, code, tag, user)
        except TimeoutError as error:
            raise _failed(f"it took longer than {_BUILD_WITHIN_S / 60:.0f} minutes") from error
        except DockerfileRefused as error:
            raise _failed(f"{str(error).rstrip('.')}. {error.next_step}".rstrip(".")) from error
        except EngineError as error:
            raise _failed(str(error).rstrip(".")) from error
        except OSError as error:
            raise _failed(f"the code could not be packed: {error.strerror}") from error
        self._records.write(tag, record)
        await self._remove_old()
        build_log.write(f"Ready: {record.size_bytes >> 20} MiB, Python {record.version}.\n")
        return await self._prepared(record, tag, code, build_log)

    async def _prepared(
        self, record: ImageRecord, tag: str, code: TaskCode, build_log: BuildLog
    ) -> PreparedEnvironment:
        """Return an image that is here, pushed if the code says where. Raises StartError."""
        prepared = PreparedEnvironment(tag, size_bytes=record.size_bytes)
        if not code.repository:
            return prepared
        try:
            image = await self._push.push(
                record.image, code.repository, tag.partition(":")[2], build_log
            )
        except EngineError as error:
            raise StartError(
                f"The image could not be pushed to {code.repository}: {str(error).rstrip('.')}.",
                ReasonCode.ENVIRONMENT_FAILED,
            ) from error
        build_log.write(f"Pushed: {image}\n")
        return replace(prepared, image=image, image_python=record.python)

    async def _exists(self, image: str) -> bool:
        try:
            await self._engine.call(partial(_inspect, image))
        except EngineError as error:
            if error.status == _NOT_FOUND:
                return False
            raise
        return True

    async def _build(
        self, spec: EnvironmentSpec, build_log: BuildLog, code: TaskCode, tag: str, user: str
    ) -> ImageRecord:
        dockerfile = parse_dockerfile(spec.dockerfile)
        build_log.write(f"Building an image from the Dockerfile of {spec.digest[:12]}.\n")
        progress = BuildProgress(build_log, dockerfile)
        started_at_s = time.time()

        async def build() -> ImageRecord:
            bases = {await self._base(image, build_log) for image in dockerfile.images}
            try:
                await self._build_steps(spec, code, tag, dockerfile, progress)
                return await self._inspect(tag, code, user)
            except BaseException:
                await asyncio.shield(self._remove(tag))
                raise
            finally:
                await asyncio.shield(self._remove_steps(progress, bases, started_at_s))

        building = asyncio.create_task(build())
        watching = asyncio.create_task(self._watch_disk(progress, building))
        try:
            return await building
        except asyncio.CancelledError:
            if progress.excess:
                raise _failed(progress.excess) from None
            raise
        finally:
            watching.cancel()

    async def _build_steps(
        self,
        spec: EnvironmentSpec,
        code: TaskCode,
        tag: str,
        dockerfile: Dockerfile,
        progress: BuildProgress,
    ) -> None:
        root = await code.fetch()
        network = f"slipway-build-{secrets.token_hex(8)}"
        limits = BuildLimits(
            memory_bytes=code.resources.memory_bytes,
            cpu_millis=max(code.resources.cpu_millis, _LEAST_CPU_MILLIS),
            network=network,
            dockerfile=_DOCKERFILE,
            arguments=build_arguments(),
        )

        async def on_event(event: dict[str, Any]) -> None:
            container = progress.add(str(event.get("stream", "")))
            if container:
                with suppress(EngineError):  # its command has ended already
                    await self._engine.limit_processes(container, _MAX_PROCESSES)

        await self._create_network(network)
        try:
            with tempfile.TemporaryFile(dir=self._records.folder) as file:
                await asyncio.to_thread(pack, file, root, spec)
                try:
                    await self._engine.build_within(limits, file, tag, on_event)
                except EngineError as error:
                    raise _failed(progress.failure(str(error))) from error
        finally:
            await asyncio.shield(self._remove_network(network))

    async def _base(self, image: str, build_log: BuildLog) -> str:
        """Return the id of an image that is built on, pulled now if it is not there."""
        if not await self._exists(image):
            await self._pull(image, build_log)
        details = await self._engine.call(partial(_inspect, image))
        if (details.get("Config") or {}).get("OnBuild"):
            raise _failed(
                f"the base image {image} has instructions of its own for images that are built on "
                "it (ONBUILD); use one without them"
            )
        return str(details["Id"])

    async def _pull(self, image: str, build_log: BuildLog) -> None:
        await asyncio.to_thread(_refuse_near_registry, image)
        build_log.write(f"Pulling the base image {image}.\n")

        async def on_event(event: dict[str, Any]) -> None:
            status = str(event.get("status", ""))
            if status.startswith(("Digest:", "Status:")):
                build_log.write(f"{status}\n")

        try:
            await self._engine.pull(image if ":" in image else f"{image}:latest", on_event)
        except EngineError as error:
            raise _unpulled(image, str(error)) from error

    async def _inspect(self, tag: str, code: TaskCode, user: str) -> ImageRecord:
        """Return what a task needs to know of a new image, which must have a Python."""
        details = await self._engine.call(partial(_inspect, tag))
        config = details.get("Config") or {}
        image = str(details["Id"])
        for program in _PYTHONS:
            match = _PROBED.fullmatch(await self._output(image, program, code, user))
            if match is None:
                continue
            version = int(match[1]), int(match[2])
            if version < _OLDEST_PYTHON:
                raise _failed(
                    f"it has Python {match[1]}.{match[2]}, and jobs need 3.11 or later; begin with "
                    "FROM python:3.12-slim, for example"
                )
            return ImageRecord(
                image=image,
                python=match[3],
                version=f"{match[1]}.{match[2]}",
                size_bytes=int(details.get("Size") or 0),
                variables=tuple(map(str, config.get("Env") or ())),
                volumes=tuple(map(str, config.get("Volumes") or ())),
            )
        raise _failed(
            "no python3 of it can be started; begin with FROM python:3.12-slim, for example, or "
            "install Python and add its folder to PATH with ENV"
        )

    async def _output(self, image: str, program: str, code: TaskCode, user: str) -> str:
        """Return what a program of the image prints, empty if it cannot be started."""
        memory_bytes = code.resources.memory_bytes
        description = {
            "Image": image,
            "Entrypoint": [program, "-I", "-c", _PROBE],
            "Cmd": [],
            "User": user,
            "WorkingDir": "/",
            "Healthcheck": {"Test": ["NONE"]},
            "NetworkDisabled": True,
            "HostConfig": {
                "NetworkMode": "none",
                "ReadonlyRootfs": True,
                "CapDrop": ["ALL"],
                "SecurityOpt": ["no-new-privileges"],
                "PidsLimit": _MAX_PROCESSES,
                "Memory": memory_bytes,
                "MemorySwap": memory_bytes,
                "LogConfig": {"Type": "json-file", "Config": {"max-size": "64k", "max-file": "1"}},
            },
        }
        name = f"slipway-probe-{secrets.token_hex(8)}"
        try:
            await self._engine.call(
                lambda docker: docker.create_container_from_config(description, name)
            )
            await self._engine.call(lambda docker: docker.start(name))
            await self._engine.call(lambda docker: docker.wait(name, timeout=_PROBE_WITHIN_S))
            output = await self._engine.call(lambda docker: docker.logs(name, tail=1, stderr=False))
        except EngineError as error:
            log.info("%s does not start in %s: %s", program, image, error)
            return ""
        finally:
            with suppress(EngineError):
                await asyncio.shield(
                    self._engine.call(
                        lambda docker: docker.remove_container(name, v=True, force=True)
                    )
                )
        return bytes(output)[:1000].decode("utf-8", "replace").strip()

    # Limits and leftovers

    async def _watch_disk(
        self, progress: BuildProgress, building: "asyncio.Task[ImageRecord]"
    ) -> None:
        """Cancel a build that writes more than a task may, or that leaves too little free."""
        free_bytes = self._disk.capacity_bytes
        while not building.done():
            await asyncio.sleep(_WATCH_EVERY_S)
            with suppress(EngineError):
                details = await self._engine.call(lambda docker: docker.info())
                root = str(details.get("DockerRootDir", ""))
                free_bytes = await asyncio.to_thread(_free_bytes, root, free_bytes)
                for container, before in list(progress.written.items()):
                    size = await self._engine.written_bytes(container)
                    progress.written[container] = max(size, before)
            if sum(progress.written.values()) > self._disk.task_bytes:
                progress.excess = (
                    f"its commands wrote more than {self._disk.task_bytes >> 20} MiB, the limit of "
                    "disk space of a task here"
                )
            elif free_bytes < self._disk.reserve_bytes:
                progress.excess = "the disk of the node is nearly full"
            if progress.excess:
                building.cancel()
                return

    async def _remove_steps(
        self, progress: BuildProgress, bases: set[str], started_at_s: float
    ) -> None:
        """Remove new images without a name: those of stages, and of steps before one that failed.

        The engine refuses to remove layers of the result.
        """
        for prefix in reversed(progress.images):
            with suppress(EngineError):
                details = await self._engine.call(partial(_inspect, prefix))
                created = datetime.fromisoformat(f"{details['Created'][:19]}+00:00").timestamp()
                is_named = bool(details.get("RepoTags") or details.get("RepoDigests"))
                if details["Id"] in bases or is_named or created < started_at_s - 1:
                    continue
                await self._engine.call(partial(_remove, details["Id"]))

    async def _create_network(self, network: str) -> None:
        """Create a network for one build, and remove those that an agent left when it died."""
        old = {"label": [_LABEL], "until": [f"{_BUILD_WITHIN_S:.0f}s"]}
        await self._engine.call(lambda docker: docker.prune_networks(old))
        await self._engine.call(lambda docker: docker.create_network(network, labels={_LABEL: "1"}))

    async def _remove_network(self, network: str) -> None:
        """Remove the network of a build, once the engine has removed its last container."""
        for _ in range(_REMOVALS):
            try:
                await self._engine.call(lambda docker: docker.remove_network(network))
            except EngineError as error:
                if error.status not in _IN_USE:
                    return
            else:
                return
            await asyncio.sleep(_REMOVE_EVERY_S)

    async def _remove(self, tag: str) -> None:
        with suppress(EngineError):
            await self._engine.call(partial(_remove, tag))

    async def _remove_old(self) -> None:
        """Remove the images that were not used for longest. One that a task uses stays."""
        for tag in self._records.outdated():
            try:
                await self._engine.call(partial(_remove, tag))
            except EngineError as error:
                if error.status != _NOT_FOUND:
                    continue
            self._records.forget(tag)


def _inspect(image: str, docker: Any) -> dict[str, Any]:
    details: dict[str, Any] = docker.inspect_image(image)
    return details


def _remove(image: str, docker: Any) -> None:
    docker.remove_image(image)


def _free_bytes(folder: str, otherwise: int) -> int:
    """Return the free space of the engine's disk, where that is on this machine."""
    return shutil.disk_usage(folder).free if Path(folder).is_dir() else otherwise


def build_arguments() -> dict[str, str]:
    """Return the variables for reaching package indexes, for Dockerfiles that declare them by ARG.

    Proxies need no ARG. Values with passwords stay here, because the project's code would see them.
    """
    return {
        name: value
        for name, value in build_variables().items()
        if not _PASSWORD.search(value)
        and not _OF_THE_NODE.fullmatch(name)
        and not value.startswith("/")
    }


def pack(file: IO[bytes], root: Path, spec: EnvironmentSpec) -> None:
    """Write the build context as a tar. Raises OSError."""
    context = root / spec.context
    if not context.resolve().is_relative_to(root.resolve()):
        raise NotADirectoryError(20, "the build context is outside of the code")
    if spec.copies is None:
        names = sorted(exclude_paths(str(context), _patterns(context)))
    else:
        names = sorted(spec.copies)
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name in names:
            path = context / name
            if name not in (_DOCKERFILE, _IGNORED) and path.resolve().is_relative_to(
                root.resolve()
            ):
                tar.add(path, arcname=name, recursive=False, filter=_of_root)
        _add_text(tar, _DOCKERFILE, spec.dockerfile)
        # The engine removes these two from the context after it has read them.
        _add_text(tar, _IGNORED, f"{_DOCKERFILE}\n{_IGNORED}\n")
    file.seek(0)


def _patterns(context: Path) -> list[str]:
    try:
        lines = (context / _IGNORED).read_text("utf-8", "replace").splitlines()
    except OSError:
        return []
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def _of_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Make an entry the same wherever it is packed."""
    entry.uid, entry.gid, entry.uname, entry.gname, entry.mtime = 0, 0, "", "", 0
    entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
    return entry


def _add_text(tar: tarfile.TarFile, name: str, text: str) -> None:
    content = text.encode("utf-8", "replace")
    entry = _of_root(tarfile.TarInfo(name))
    entry.size = len(content)
    with tempfile.SpooledTemporaryFile() as buffer:
        buffer.write(content)
        buffer.seek(0)
        tar.addfile(entry, buffer)


def _refuse_near_registry(image: str) -> None:
    """Raise StartError for a registry on the node itself: the engine would reach it for anyone."""
    first, slash, _ = image.partition("/")
    if not slash or not (first == "localhost" or "." in first or ":" in first):
        return
    host = first.rpartition(":")[0] if first.rpartition(":")[2].isdigit() else first
    try:
        addresses = {entry[4][0] for entry in socket.getaddrinfo(host, None)}
    except OSError:
        return  # the engine says the same
    for text in addresses:
        address = ipaddress.ip_address(str(text).partition("%")[0])
        if address.is_loopback or address.is_link_local or address.is_unspecified:
            raise _unpulled(image, f"the registry {host} is the node itself")


def _unpulled(image: str, why: str) -> StartError:
    return _failed(
        f"the base image {image} is not on the node and could not be pulled: {why.rstrip('.')}"
    )


def _failed(why: str) -> StartError:
    return StartError(f"The image could not be built: {why}.", ReasonCode.ENVIRONMENT_FAILED)
