"""The port of a back end: five verbs, keyed by a handle that outlives the agent."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from slipway.schemas.agent import EnvironmentSpec, IsolationFacts, TaskKey, TaskSpec
from slipway.schemas.workloads import Resources
from workers.launcher.launch import StopRequest
from workers.launcher.logs import Chunk
from workers.node_agent.folders import TaskFolder
from workers.node_agent.package_archives import FetchArchive, no_archives


class Phase(StrEnum):
    """Phase of a task as its back end sees it."""

    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"
    LOST = "lost"


@dataclass(frozen=True)
class Observation:
    """A phase, and for `lost` the reason as a sentence, if the back end knows it."""

    phase: Phase
    detail: str = ""
    out_of_memory: bool = False
    never_started: bool = False


@dataclass(frozen=True)
class LaunchSpec:
    """Everything needed to start one attempt. `runtime` and `readable` are what `prepare` answered.

    `cache` is the folder in which tasks of the same project share what they have downloaded,
    `personal` the one that belongs to the person whose task it is.
    """

    key: TaskKey
    workload_id: str
    spec: TaskSpec
    folder: TaskFolder
    persistent: Path
    address: str
    runtime: str
    cache: Path | None = None
    personal: Path | None = None
    gpus: tuple[str, ...] = ()
    environment: dict[str, str] | None = None
    readable: tuple[str, ...] = ()

    @property
    def project(self) -> str:
        """The project whose work it is: what the boundary is drawn around."""
        return self.spec.persistent_key.partition("/")[0]

    @property
    def own_folders(self) -> list[Path]:
        """The folders that the task may change."""
        folder = self.folder
        some = [path for path in (self.cache, self.personal) if path is not None]
        return [folder.work, folder.home, folder.tmp, self.persistent, *some]


@dataclass(frozen=True)
class PreparedEnvironment:
    """An environment that is ready to use. `runtime` is its name in launch specs.

    `locked` are its exact versions, one requirement per line, or empty if they are unknown.
    `readable` are the folders that tasks need for it, as the agent recorded them. The environment
    itself is not queried for them. `variables` are those that its processes get. `image` is the
    reference of an image that was pushed, with its digest, and `image_python` its interpreter.
    """

    runtime: str
    size_bytes: int | None = None
    locked: str = ""
    readable: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    image: str = ""
    image_python: str = ""


@dataclass(frozen=True)
class TaskCode:
    """The code of a task, which an image is built from, with the resources that a build may use.

    `fetch` returns the folder of the unpacked snapshot, which nobody changes. With `repository`
    the image is pushed there.
    """

    fetch: Callable[[], Awaitable[Path]]
    resources: Resources
    repository: str = ""


class BuildLog(Protocol):
    """Receiver of the output of a build, line by line."""

    def write(self, text: str) -> None:
        """Add text. Never blocks."""


class Backend(Protocol):
    """Starts, watches and ends tasks.

    Starting the same handle twice has no further effect, stopping a task that is gone succeeds, and
    an unknown handle is `lost`. After `ended` the journal of the task holds the cause.
    """

    name: str
    # True if shims notify the agent as a user other than the agent's.
    notifies_as_other_user: bool

    def is_available(self) -> bool:
        """Return whether tasks can run in it on this machine."""

    def isolation_facts(self) -> IsolationFacts:
        """Return how it keeps the tasks of different projects apart."""

    def check(self, spec: TaskSpec) -> None:
        """Raise StartError for a task that must not run in it. Called before anything is built."""

    async def prepare(
        self,
        spec: EnvironmentSpec | None,
        log: BuildLog,
        project: str | None = None,
        code: TaskCode | None = None,
        fetch: FetchArchive = no_archives,
    ) -> PreparedEnvironment:
        """Prepare an environment, once. Nothing is logged if it is ready already.

        None stands for the default environment of tasks. Packages that must be built from source
        are built for the project alone, and so are images, which need `code`. `fetch` gets the
        archives that requirements name by their digests. Raises StartError.
        """

    async def start(self, order: LaunchSpec) -> str:
        """Start a task and return its handle. Raises StartError."""

    async def phase(self, handle: str) -> Observation:
        """Return the current phase."""

    async def stop(self, handle: str, request: StopRequest) -> None:
        """Request an end within the grace period. Returns before the task has ended."""

    async def remove(self, handle: str) -> None:
        """End the task in any phase and release its resources."""

    def shell_socket(self, handle: str) -> Path:
        """Return the socket on which the shim of a task serves shells, as the agent sees it."""

    async def logs(self, handle: str, rank: int, offset: int, limit: int) -> Chunk:
        """Return output of one rank from an offset, empty at its end or without a log."""
