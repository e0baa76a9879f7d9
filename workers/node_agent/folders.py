"""Layout of a node's data folder. No other module defines paths in it."""

import fcntl
import hashlib
import os
import re
import shutil
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from slipway.schemas.agent import TaskKey
from workers.launcher.platform_programs import READABLE_PACKAGES
from workers.node_agent.errors import AgentError, StartError
from workers.node_agent.sdk_packages import bundle_packages

# The kernel's limit for the path of a socket, less the names that we append.
_SOCKET_PATH_LIMIT: Final = 100
_CONTACT_TAIL: Final = len("/contact/0123456789abcdef/s")
_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_DIGEST = re.compile(r"(?:sha256:)?([0-9a-f]{32,128})")


def checked_name(text: str, what: str) -> str:
    """Return an external name that is a valid folder name. Raises StartError."""
    if not _SAFE.fullmatch(text):
        raise StartError(f"The {what} {text[:100]!r} is not a valid folder name.")
    return text


def handle_of(key: TaskKey) -> str:
    """Return the deterministic name of an attempt, equal before and after a crash."""
    return f"{key.task_id}-{key.epoch}"


def checked_digest(text: str, what: str) -> str:
    """Return the hexadecimal digits of a digest. Raises StartError."""
    match = _DIGEST.fullmatch(text)
    if match is None:
        raise StartError(f"The digest {text[:100]!r} of the {what} is not a valid digest.")
    return match.group(1)


@dataclass(frozen=True)
class TaskFolder:
    """The folder of one attempt. Only `state`, `work`, `home` and `tmp` are the task's."""

    path: Path

    @property
    def record(self) -> Path:
        """File with the data that an agent needs to adopt the task."""
        return self.path / "task.json"

    @property
    def cursors(self) -> Path:
        """File with the positions up to which reports, logs and samples have been sent."""
        return self.path / "sent.json"

    @property
    def state(self) -> Path:
        """Folder that the shim writes to."""
        return self.path / "state"

    @property
    def shell(self) -> Path:
        """Socket of the shells of a task in a container, whose shim reaches no other folder."""
        return self.state / "shell"

    @property
    def work(self) -> Path:
        """A fresh copy of the code: where ranks start."""
        return self.path / "work"

    @property
    def home(self) -> Path:
        """HOME of the ranks."""
        return self.path / "home"

    @property
    def tmp(self) -> Path:
        """TMPDIR of the ranks."""
        return self.path / "tmp"


class NodeFolders:
    """The data folder of one node, private to its user."""

    def __init__(self, data_dir: Path) -> None:
        self.root = data_dir
        self.mark = hashlib.sha256(str(data_dir).encode()).hexdigest()[:12]
        self.identity = data_dir / "node.json"
        self.connected = data_dir / "connected"
        # Exists while the portal does not know the node. `manage.py up` lets it join again then.
        self.removed = data_dir / "refused"
        self.shared = data_dir / "shared"
        self.tasks = data_dir / "tasks"
        self.persistent = data_dir / "persistent"
        self.cache = data_dir / "cache"
        self.snapshots = data_dir / "snapshots"
        self.environments = data_dir / "environments"
        # Packages that were built from source, by project.
        self.images = data_dir / "images"
        # /tmp of the container of an image, which one task has.
        self.container_tmp = data_dir / "container-tmp"
        self.project_environments = self.environments / "projects"
        # Wheels unpacked by uv, which share their files with the shared environments. The outdated
        # folders of earlier releases accepted files of any build.
        self.unpacked = data_dir / "wheel-cache"
        # Archives of conda packages by sha256, which only the agent writes.
        self.conda_archives = data_dir / "conda-archives"
        self.outdated = (data_dir / "uv-cache", data_dir / "pip-cache")
        self.code = data_dir / "code"
        self.sdk = data_dir / "sdk"
        short = len(str(data_dir)) + _CONTACT_TAIL <= _SOCKET_PATH_LIMIT
        self.sockets = data_dir if short else _short_folder(self.mark)
        self._lock: int | None = None

    def remove_sockets(self) -> None:
        """Remove the folder of sockets outside of the data folder. No task may run any more."""
        if self.sockets != self.root:
            shutil.rmtree(self.sockets, ignore_errors=True)

    @property
    def notification_socket(self) -> Path:
        """The socket by which shims wake the agent."""
        return self.sockets / "shared" / "bell"

    @property
    def contacts(self) -> Path:
        """Folder of the sockets between ranks and their shims."""
        return self.sockets / "contact"

    @property
    def listeners(self) -> Path:
        """Folder of the sockets that the relay leads to, for the agent and its shims alone."""
        return self.sockets / "listen"

    def contact(self, handle: str) -> Path:
        """Return the socket by which ranks reach their shim. Its path must be short."""
        return self.contacts / hashlib.sha256(handle.encode()).hexdigest()[:16] / "s"

    def listener(self, handle: str) -> Path:
        """Return the socket that a served task listens on, if the relay leads to it."""
        return self.listeners / hashlib.sha256(handle.encode()).hexdigest()[:16]

    def shell(self, handle: str) -> Path:
        """Return the socket by which the agent reaches the shells of a task."""
        return self.listeners / f"{hashlib.sha256(handle.encode()).hexdigest()[:16]}s"

    def dashboard(self, handle: str) -> Path:
        """Return the socket by which the agent reaches the dashboard of a task's cluster."""
        return self.listeners / f"{hashlib.sha256(handle.encode()).hexdigest()[:16]}d"

    def task(self, handle: str) -> TaskFolder:
        """Return the folder of one attempt. Raises StartError for an invalid name."""
        return TaskFolder(self.tasks / checked_name(handle, "task id"))

    def persistent_of(self, key: str) -> Path:
        """Return the persistent folder of `NAME` or `PROJECT/NAME`. Raises StartError."""
        parts = [checked_name(part, "persistent key") for part in key.split("/", 1)]
        return self.persistent.joinpath(*parts)

    def cache_of(self, persistent_key: str) -> Path | None:
        """Return the shared download cache of a key's project, or None for a key without one.

        Raises StartError.
        """
        project, separator, _ = persistent_key.partition("/")
        return self.cache / checked_name(project, "persistent key") if separator else None

    def project_homes(self) -> list[Path]:
        """Folders of the environments that belong to one project."""
        return [path for path in self.project_environments.glob("*/*") if path.is_dir()]

    def refused(self, handle: str) -> TaskFolder:
        """Return a folder that does not exist, for an attempt refused before it has one."""
        return TaskFolder(self.tasks / f".{hashlib.sha256(handle.encode()).hexdigest()[:16]}")

    def prepare(self, *, launcher: Path, sdk: Path, copies: bool = False) -> None:
        """Create the folders, and give ranks access to the needed parts of our code only.

        With `copies` they are there for tasks that see this folder and not our code.
        """
        place = _copy if copies else _link
        for folder in (
            *(self.root, self.tasks, self.persistent, self.cache),
            *(self.snapshots, self.environments, self.images, self.contacts),
            self.listeners,
        ):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in (self.code, self.code / "workers", self.sdk):
            folder.mkdir(exist_ok=True)
            # Contains only our code and its packages, which the users of projects have to read.
            folder.chmod(0o755)
        self.shared.mkdir(mode=0o755, exist_ok=True)
        self.notification_socket.parent.mkdir(mode=0o755, exist_ok=True)
        for name in READABLE_PACKAGES:
            place(self.code / "workers" / name, launcher.parent / name)
        place(self.sdk / "slipway", sdk)
        bundle_packages(self.sdk)

    def allow_traversal(self) -> None:
        """Let other users pass through our own folders to what is theirs, without listing any."""
        for folder in (self.root, self.tasks, self.persistent, self.cache, self.contacts):
            folder.chmod(0o711)
        self.environments.chmod(0o711)

    def lock(self) -> None:
        """Lock this folder for this agent until the process ends. Raises AgentError."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        lock = os.open(self.root / "agent.lock", flags, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(lock)
            raise AgentError(
                f"Another agent already runs with the data folder {self.root}. Stop it, or give "
                "this one its own folder with --data-dir."
            ) from error
        self._lock = lock


def _link(link: Path, target: Path) -> None:
    if link.is_symlink() and link.readlink() == target:
        return
    draft = link.with_name(f".{link.name}.new")
    draft.unlink(missing_ok=True)
    draft.symlink_to(target)
    draft.replace(link)


def _copy(copy: Path, source: Path) -> None:
    """Copy a folder of our code, in place of what an earlier agent left there."""
    if copy.is_symlink():
        copy.unlink()
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))


def _short_folder(mark: str) -> Path:
    folder = Path(tempfile.gettempdir()) / f"slipway-{os.getuid()}-{mark}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise AgentError(
            f"{folder} is not a private folder of this user, but sockets must be there because "
            "the path of the data folder is long. Remove it, or choose a shorter --data-dir."
        )
    return folder
