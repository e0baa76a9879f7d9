"""Images of projects in an allocation: Enroot or Apptainer of the site runs the task in one.

The agent stays outside, as the same Unix user, and starts one container with the task's starter in
it (`task_container`). The container sees the image, read-only, the folders of this agent, and /tmp
and /var/tmp of its own. It shares network, processes and limits with the agent. Images are kept by
digest in the folder of the pool, for later allocations of the same account.

Command lines: https://github.com/NVIDIA/enroot/blob/master/doc/usage.md and
https://apptainer.org/docs/user/main/cli.html
"""

import asyncio
import fcntl
import os
import re
import shutil
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from slipway.schemas.workloads import ReasonCode
from workers.launcher import task_starter
from workers.node_agent.backends.base import BuildLog
from workers.node_agent.errors import AgentError, StartError
from workers.node_agent.file_lock import hold_lock
from workers.node_agent.folders import NodeFolders
from workers.node_agent.task_container import TaskContainer

_REFERENCE: Final = re.compile(
    r"([A-Za-z0-9][A-Za-z0-9.:_-]*)/([a-z0-9._/-]+)@sha256:([0-9a-f]{64})"
)
_LOOPBACK: Final = ("127.0.0.1", "localhost")
_STARTER: Final = Path(task_starter.__file__).read_text("utf-8")
# Variables of the agent that the programs need. Enroot and Apptainer read accounts of registries
# below HOME or XDG_CONFIG_HOME, which no container sees.
_KEPT = re.compile(
    r"HOME|USER|LOGNAME|LANG|TMPDIR|XDG_\w+|\w+_proxy|\w+_PROXY|SSL_CERT_\w+"
    r"|CUDA_VISIBLE_DEVICES|ENROOT_(?:TEMP_PATH|CONFIG_PATH)"
)
# Below these the container has folders of its own, in which the task may write.
_TEMPORARY: Final = ("/tmp", "/var/tmp")  # noqa: S108
_KEPT_S: Final = 14 * 86_400.0
_FETCH_WITHIN_S: Final = 3600.0
_LAST_LINES: Final = 3
_LINE_BYTES: Final = 1 << 16


@dataclass(frozen=True)
class TaskImage:
    """An image in a registry by digest, its interpreter, and the program that is to run it."""

    runtime: str
    reference: str
    python: str


@dataclass(frozen=True)
class _Place:
    """The image in a registry, and its names in the folder of images."""

    registry: str
    repository: str
    digest: str
    folder: Path

    @property
    def name(self) -> str:
        return self.digest[:32]

    @property
    def is_on_this_machine(self) -> bool:
        """True for a registry that speaks plain HTTP, as Docker assumes of this machine's."""
        return self.registry.partition(":")[0] in _LOOPBACK


class _Runtime(ABC):
    """Command lines of one program."""

    def __init__(self, program: str, place: _Place) -> None:
        self.program = program
        self.place = place

    @property
    @abstractmethod
    def kept(self) -> Path:
        """Return where an image is kept that is ready."""

    @abstractmethod
    def variables(self) -> dict[str, str]:
        """Return the settings of the program."""

    @abstractmethod
    def fetch_commands(self, draft: Path) -> Sequence[Sequence[str]]:
        """Return the commands that fetch an image, by the file `draft`, to where it is kept."""

    @abstractmethod
    def run_command(
        self, rc: Path, mounts: Sequence[tuple[Path, str]], *, gpus: bool
    ) -> Sequence[str]:
        """Return the command that runs a program in the image, whose words follow."""


class _Enroot(_Runtime):
    @property
    def kept(self) -> Path:
        return self.place.folder / "enroot" / self.place.name

    def variables(self) -> dict[str, str]:
        place = self.place
        folders = {"DATA": "enroot", "CACHE": "layers", "RUNTIME": "run"}
        own = {f"ENROOT_{name}_PATH": str(place.folder / path) for name, path in folders.items()}
        return own | ({"ENROOT_ALLOW_HTTP": "yes"} if place.is_on_this_machine else {})

    def fetch_commands(self, draft: Path) -> Sequence[Sequence[str]]:
        place = self.place
        source = f"docker://{place.registry}#{place.repository}@sha256:{place.digest}"
        return (
            (self.program, "import", "--output", str(draft), source),
            (self.program, "create", "--force", "--name", place.name, str(draft)),
        )

    def run_command(
        self, rc: Path, mounts: Sequence[tuple[Path, str]], *, gpus: bool
    ) -> Sequence[str]:
        visible = "all" if gpus else "void"
        return (
            *(self.program, "start", "--rc", str(rc)),
            *("--env", f"NVIDIA_VISIBLE_DEVICES={visible}"),
            *(word for source, target in mounts for word in ("--mount", f"{source}:{target}")),
            self.place.name,
        )


class _Apptainer(_Runtime):
    @property
    def kept(self) -> Path:
        return self.place.folder / f"{self.place.name}.sif"

    def variables(self) -> dict[str, str]:
        return {"APPTAINER_CACHEDIR": str(self.place.folder / "layers")}

    def fetch_commands(self, draft: Path) -> Sequence[Sequence[str]]:
        place = self.place
        source = f"docker://{place.registry}/{place.repository}@sha256:{place.digest}"
        plain = ("--no-https",) if place.is_on_this_machine else ()
        return (
            (self.program, "pull", *plain, str(draft), source),
            ("mv", "-f", str(draft), str(self.kept)),
        )

    def run_command(
        self, rc: Path, mounts: Sequence[tuple[Path, str]], *, gpus: bool
    ) -> Sequence[str]:
        # Without --pid the agent sees the processes, which it watches and ends.
        return (
            *(self.program, "exec", "--contain", "--cleanenv", "--no-home", "--pwd", "/"),
            *(("--nv",) if gpus else ()),
            *(word for source, target in mounts for word in ("--bind", f"{source}:{target}")),
            str(self.kept),
        )


_RUNTIMES: Final[dict[str, type[_Runtime]]] = {"enroot": _Enroot, "apptainer": _Apptainer}


class ImageRunner:
    """Fetches an image once, and runs the one container of an allocation in it."""

    def __init__(
        self, image: TaskImage, base: Path, folders: NodeFolders, *, gpus: bool = False
    ) -> None:
        """`base` is the folder of the pool, which the agents of one account share."""
        self._image = image
        self._folders = folders
        self._gpus = gpus
        self._images = base / "images"
        self._container: TaskContainer | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._used: int | None = None

    async def start(self, log: BuildLog) -> TaskContainer:
        """Return the container, which is started the first time. Raises StartError."""
        if self._container is None:
            runtime = self._runtime()
            await self._fetch(runtime, log)
            self._container = await asyncio.to_thread(self._run, runtime)
        return self._container

    def close(self) -> None:
        """End the container, unless a task runs in it, and remove its temporary files.

        The image may be removed then.
        """
        if self._container is not None:
            self._container.close()
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(5)
        shutil.rmtree(self._folders.container_tmp, ignore_errors=True)
        if self._used is not None:
            os.close(self._used)
            self._used = None

    def _runtime(self) -> _Runtime:
        image, root = self._image, self._folders.root
        match = _REFERENCE.fullmatch(image.reference)
        if match is None:
            raise _failed(f"{image.reference[:200]!r} names no image by digest")
        if any(root.is_relative_to(folder) for folder in _TEMPORARY):
            raise _failed(
                f"the folder of the pool, {root.parent}, is below /tmp, which a container has of "
                "its own. An administrator sets another folder"
            )
        if self._folders.sockets != root:
            raise _failed(
                f"the path of the folder of the pool, {root.parent}, is too long for sockets. An "
                "administrator sets a shorter folder"
            )
        program = shutil.which(image.runtime)
        if program is None:
            raise _failed(f"this machine has no program {image.runtime}")
        place = _Place(match[1], match[2], match[3], self._images)
        return _RUNTIMES[Path(program).name](program, place)

    async def _fetch(self, runtime: _Runtime, log: BuildLog) -> None:
        self._images.mkdir(mode=0o700, parents=True, exist_ok=True)
        name = runtime.place.name
        async with hold_lock(self._images / f"{name}.lock"):
            # Nobody removes the image while this is held.
            self._used = os.open(self._images / f"{name}.used", os.O_RDWR | os.O_CREAT, 0o600)
            await asyncio.to_thread(fcntl.flock, self._used, fcntl.LOCK_SH)
            ready = self._images / f"{name}.ready"
            if not (ready.exists() and runtime.kept.exists()):
                await asyncio.to_thread(_remove_unused, self._images)
                log.write(f"Fetching the image {self._image.reference}\n")
                draft = self._images / f"{name}.draft"
                draft.unlink(missing_ok=True)
                try:
                    for command in runtime.fetch_commands(draft):
                        await _follow(command, _environment(runtime), log)
                finally:
                    draft.unlink(missing_ok=True)
            ready.touch()

    def _run(self, runtime: _Runtime) -> TaskContainer:
        folders = self._folders
        temporary = folders.container_tmp
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(mode=0o700)
        # The entry point of the image is not run, as in Docker and Kubernetes.
        rc, path, output = (folders.root / f"container.{end}" for end in ("rc", "task", "log"))
        rc.write_text('exec "$@"\n', "utf-8")
        persistent = [] if folders.persistent.is_relative_to(folders.root) else [folders.persistent]
        shared = [folders.root, *persistent]
        mounts = [(folder, str(folder)) for folder in shared]
        mounts += [(temporary, target) for target in _TEMPORARY]
        command = runtime.run_command(rc, mounts, gpus=self._gpus)
        starter = (self._image.python, "-I", "-S", "-c", _STARTER)
        with output.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, *starter, str(path), *map(str, shared)],
                env=_environment(runtime),
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        process = self._process

        def obstacle() -> str:
            if process.poll() is None:
                return ""
            lines = output.read_text("utf-8", "replace").strip().splitlines()
            return " ".join(lines[-_LAST_LINES:]) or f"it ended with status {process.returncode}."

        try:
            return TaskContainer.wait(path, obstacle=obstacle)
        except AgentError as error:
            process.kill()
            raise StartError(str(error), ReasonCode.ENVIRONMENT_FAILED) from error


def _failed(reason: str) -> StartError:
    return StartError(
        f"The image of the task cannot be used: {reason}.", ReasonCode.ENVIRONMENT_FAILED
    )


def _environment(runtime: _Runtime) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if _KEPT.fullmatch(name)}
    # Enroot finds its own programs by the search path.
    path = f"{Path(runtime.program).parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
    return {**kept, "PATH": path, **runtime.variables()}


async def _follow(command: Sequence[str], environment: dict[str, str], log: BuildLog) -> None:
    """Run a command, with its output in the log. Raises StartError with its last lines."""
    process = await asyncio.create_subprocess_exec(
        *command,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        limit=_LINE_BYTES,
    )
    output = process.stdout
    last: list[str] = []
    try:
        async with asyncio.timeout(_FETCH_WITHIN_S):
            while output is not None and (block := await output.read(_LINE_BYTES)):
                text = block.decode("utf-8", "replace")
                log.write(text)
                last = [*last, *filter(None, map(str.strip, text.splitlines()))][-_LAST_LINES:]
            status = await process.wait()
    except TimeoutError:
        raise _failed(f"it was not there after {_FETCH_WITHIN_S / 60:.0f} minutes") from None
    finally:
        with suppress(ProcessLookupError):
            process.kill()
    if status:
        name = Path(command[0]).name
        raise _failed(f"{name} {command[1]} failed: {' '.join(last) or f'status {status}'}")


def _remove_unused(images: Path) -> None:
    """Remove images that no allocation has used for two weeks."""
    for ready in images.glob("*.ready"):
        with suppress(OSError):
            if time.time() - ready.stat().st_mtime < _KEPT_S:
                continue
        name = ready.stem
        lock = os.open(images / f"{name}.used", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue  # in use
        else:
            ready.unlink(missing_ok=True)
            (images / f"{name}.sif").unlink(missing_ok=True)
            shutil.rmtree(images / "enroot" / name, ignore_errors=True)
        finally:
            os.close(lock)
