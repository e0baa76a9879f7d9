"""Isolation between the tasks of different projects on this node, measured at startup.

`namespaces` gives each task a file system, processes, shared memory and, on request, a network of
its own. If the agent is root, each project also has a Unix user, taken from a range. That alone is
the level `users`. `shared` has neither: all tasks run as the agent's user, separated only by
Landlock and their good will.
"""

import fcntl
import json
import logging
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final, Literal, cast

from slipway.schemas.agent import IsolationFacts
from workers.launcher import seccomp
from workers.launcher.atomic_files import read_json, write_atomically
from workers.launcher.confinement import landlock_version
from workers.launcher.mounts import View
from workers.launcher.service_forwarder import Service
from workers.node_agent.errors import AgentError, StartError
from workers.node_agent.folders import NodeFolders
from workers.node_agent.settings import AgentSettings

log = logging.getLogger(__name__)

ProcessLevel = Literal["namespaces", "users", "shared", "none"]
LEVELS: Final = ("namespaces", "users", "shared", "none")
_PROBE_WITHIN_S: Final = 20.0
# No distribution, container engine or directory service allocates users from here on: systemd's
# table of user ranges (systemd.io/UIDS-GIDS) lists it as unused. One block for each data folder.
_FIRST_UID: Final = 1_879_048_192
_BLOCK: Final = 65_536
_BLOCKS: Final = 4096
_SMALL_BLOCK: Final = 8192
_LANDLOCK_SCOPES: Final = 6
_BOOT: Final = (
    "import sys; sys.path.insert(0, sys.argv[1]); from workers.launcher.sandbox import main; main()"
)


@dataclass(frozen=True)
class ProjectUser:
    """The Unix user that runs the tasks of one project. None where the agent is not root."""

    uid: int
    gid: int


class ProjectUsers:
    """Allocates Unix users to projects, for ever: a file owned by one never becomes another's.

    The list lies in the folder that outlives attempts: nodes that share it as storage give a
    project one user, so each of them can read what the others wrote.
    """

    def __init__(self, folder: Path, first: int, count: int) -> None:
        self._file = folder / ".users.json"
        former = folder.parent / "users.json"
        if former.exists() and not self._file.exists():
            write_atomically(self._file, former.read_text("utf-8"))
            former.unlink()
        self._first = first
        self._count = count

    @property
    def probe_user(self) -> ProjectUser:
        """The last of the range, which no project gets."""
        last = self._first + self._count - 1
        return ProjectUser(last, last)

    def user_of(self, project: str) -> ProjectUser:
        """Return the user of a project, allocated now if it has none. Raises StartError."""
        with open(self._file.with_suffix(".lock"), "w", opener=_privately) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            known = read_json(self._file) or {}
            uid = known.get(project)
            if not isinstance(uid, int):
                # Nodes with other ranges may have allocated users in the same list.
                last = self._first + self._count - 1
                own = [taken for taken in known.values() if self._first <= taken <= last]
                uid = max([self._first - 1, *own]) + 1
                if uid >= self.probe_user.uid:
                    raise StartError(
                        f"This node has no free Unix user for another project: all {self._count} "
                        f"from {self._first} on are in use. Give the agent a larger --user-range."
                    )
                write_atomically(self._file, json.dumps({**known, project: uid}))
        if uid <= 0:
            raise StartError(
                f"{self._file} has user {uid} for the project {project}: it must not be root."
            )
        return ProjectUser(uid, uid)


class Isolation:
    """The level in force on this node, and what each task gets because of it."""

    def __init__(
        self,
        level: ProcessLevel,
        *,
        users: ProjectUsers | None = None,
        features: Sequence[str] = (),
        detail: str = "",
        hidden: Sequence[str] = (),
    ) -> None:
        self.level = level
        self.features = tuple(features)
        self.detail = detail
        self.hidden = tuple(hidden)
        self._users = users

    @classmethod
    def measure(cls, settings: AgentSettings, folders: NodeFolders) -> "Isolation":
        """Try what this machine permits, strongest first. Raises AgentError.

        It is refused to start at a level that the administrator asked for and cannot be had.
        """
        hidden = tuple(map(str, (folders.root, *settings.hidden)))
        users = _users_of(settings, folders) if os.geteuid() == 0 else None
        isolation = settings.isolation
        reasons: list[str] = []
        for level, probe in (("namespaces", _probe_namespaces), ("users", _probe_users)):
            if isolation not in ("auto", level):
                continue
            reason = probe(folders, users)
            if not reason:
                offline = level == "namespaces" and not _probe_namespaces(
                    folders, users, offline=True
                )
                features = _features(level, root=users is not None, offline=offline)
                return cls(
                    cast(ProcessLevel, level),
                    users=users,
                    features=features,
                    detail=" ".join(reasons),
                    hidden=hidden,
                )
            reasons.append(f"No {level}: {reason}.")
            if isolation == level:
                raise AgentError(f"The isolation level {level} is not available: {reason}.")
        if isolation == "none":
            return cls("none", detail="Isolation was switched off by --isolation none.")
        if isolation == "shared":
            reasons = ["An administrator chose --isolation shared."]
        return cls("shared", features=_features("shared"), detail=" ".join(reasons), hidden=hidden)

    @classmethod
    def none(cls) -> "Isolation":
        """For an agent that starts nothing."""
        return cls("none")

    @property
    def keeps_projects_apart(self) -> bool:
        """True if hostile code of one project cannot reach another's."""
        return self.level in ("namespaces", "users")

    def facts(self, backend: str) -> IsolationFacts:
        """Return the isolation report of a back end for the portal."""
        return IsolationFacts(
            backend=backend,
            level="shared" if self.level == "none" else self.level,
            features=list(self.features),
            detail=self.detail[:500],
        )

    def user_of(self, project: str) -> ProjectUser | None:
        """Return the Unix user of a project, or None if tasks run as the agent's user."""
        return self._users.user_of(project) if self._users and self.level != "none" else None

    def command(
        self,
        code: Path,
        view: View,
        command: Sequence[str],
        *,
        user: ProjectUser | None,
        services: Sequence[Service] = (),
    ) -> list[str]:
        """Return a command line that runs another in a sandbox. Only at the level `namespaces`.

        A view that is offline reaches these services and nothing else.
        """
        if user is not None:
            view = replace(view, uid=user.uid, gid=user.gid)
        else:
            view = replace(view, uid=os.getuid(), gid=os.getgid())
        hidden = (*view.hidden, *self.hidden)
        description = {
            **asdict(view),
            "hidden": hidden,
            "own_user": user is not None,
            "services": [(service.host, service.port) for service in services],
        }
        return [
            *(sys.executable, "-I", "-S", "-c", _BOOT, str(code)),
            json.dumps(description),
            *command,
        ]


def _features(level: str, *, root: bool = False, offline: bool = False) -> list[str]:
    items = ["mount", "pid", "ipc"] if level == "namespaces" else []
    if level == "namespaces" and offline:
        items.append("network")
    items.append("unix-users" if root else "user" if level == "namespaces" else "")
    if seccomp.is_supported():
        items.append("seccomp")
    if landlock_version():
        items.append("landlock")
    if landlock_version() >= _LANDLOCK_SCOPES:
        items.append("landlock-scopes")
    return [name for name in items if name]


def _privately(path: str, flags: int) -> int:
    """Open a file that only its owner can open, and so lock."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _users_of(settings: AgentSettings, folders: NodeFolders) -> ProjectUsers:
    first, count = settings.user_range or _free_range(folders.mark)
    return ProjectUsers(folders.persistent, first, count)


def _free_range(mark: str) -> tuple[int, int]:
    """A block of users for this data folder among those that this user namespace knows."""
    first = _FIRST_UID + int(mark, 16) % _BLOCKS * _BLOCK
    lines = Path("/proc/self/uid_map").read_text("ascii").splitlines()
    ranges = [(int(start), int(count)) for start, _, count in map(str.split, lines)]
    if any(start <= first and first + _BLOCK <= start + count for start, count in ranges):
        return first, _BLOCK
    # A container has only some user ids. Those at the upper end are the least likely to be in use.
    start, count = max(ranges, key=lambda pair: pair[1])
    size = min(_SMALL_BLOCK, max(count // 2, 1))
    return start + count - size, size


def _probe_namespaces(
    folders: NodeFolders, users: ProjectUsers | None, *, offline: bool = False
) -> str:
    """Create a trial sandbox and return why that is impossible, or ""."""
    user = users.probe_user if users else None
    trial = Isolation("namespaces", hidden=[str(folders.root)])
    view = View(writable=(), readable=code_places(folders), offline=offline)
    # The shell is the second process inside, and cannot see the data folder.
    check = 'test $$ -eq 2 && test ! -e "$1"'
    shell = ["/bin/sh", "-c", check, "sh", str(folders.tasks)]
    command = trial.command(folders.code, view, shell, user=user)
    return _outcome(command, user=None)


def _probe_users(folders: NodeFolders, users: ProjectUsers | None) -> str:
    """Check whether another user can work in our folders. Return why not, or ""."""
    if users is None:
        return "the agent is not root"
    folders.allow_traversal()
    places = " && ".join(f"test -x '{path}'" for path in (folders.tasks, *code_places(folders)))
    command = ["/bin/sh", "-c", f"{places} && test -x '{sys.executable}'"]
    reason = _outcome(command, user=users.probe_user)
    if reason:
        return f"other users cannot enter the folders above {folders.root} or of Slipway"
    return ""


def code_places(folders: NodeFolders) -> tuple[str, ...]:
    """Return the folders of our code that sandboxed processes need."""
    links = [*(folders.code / "workers").iterdir(), *folders.sdk.iterdir()]
    return tuple(map(str, (folders.code, folders.sdk, *(link.resolve() for link in links))))


def _outcome(command: list[str], *, user: ProjectUser | None) -> str:
    try:
        done = subprocess.run(
            command,
            env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PROBE_WITHIN_S,
            check=False,
            user=user.uid if user else None,
            group=user.gid if user else None,
            extra_groups=[] if user else None,
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return str(error)
    if done.returncode == 0:
        return ""
    lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    return lines[-1][:200] if lines else f"the test sandbox exited with status {done.returncode}"
