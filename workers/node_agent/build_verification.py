"""Check what a build left behind, and take it from the build: nothing of it is believed or run."""

import os
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from slipway.schemas.workloads import ReasonCode
from workers.node_agent.errors import StartError

_CONFIGURATION: Final = "pyvenv.cfg"
_FOLDER_MODE: Final = 0o755
_READ: Final = 0o444
_EXECUTE: Final = 0o111


@dataclass(frozen=True)
class Skeleton:
    """An empty environment as a base interpreter made it, before anything was installed.

    Without a configuration it is a folder of conda, which needs no base interpreter.
    """

    configuration: bytes | None
    links: dict[str, str]


def skeleton_of(attempt: Path) -> Skeleton:
    """Note the links and the configuration of an environment in which nothing has run yet."""
    links = {
        str(path.relative_to(attempt)): str(path.readlink())
        for path in (*attempt.iterdir(), *(attempt / "bin").iterdir())
        if path.is_symlink()
    }
    return Skeleton((attempt / _CONFIGURATION).read_bytes(), links)


def seal(attempt: Path, skeleton: Skeleton) -> None:
    """Make a build read-only and owned by the agent. Raises StartError for forbidden content."""
    _check_skeleton(attempt, skeleton)
    inside = os.path.realpath(attempt)
    folders = [str(attempt)]
    while folders:
        folder = folders.pop()
        _own(folder, os.lstat(folder))
        os.chmod(folder, _FOLDER_MODE)  # noqa: PTH101
        with os.scandir(folder) as children:
            for child in children:
                status = child.stat(follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    folders.append(child.path)
                elif stat.S_ISLNK(status.st_mode):
                    if str(Path(child.path).relative_to(attempt)) not in skeleton.links:
                        _check_link(Path(child.path), inside, attempt)
                    _own(child.path, status)
                elif stat.S_ISREG(status.st_mode):
                    _seal_file(child.path, status, attempt)
                else:
                    raise _refused(
                        Path(child.path), attempt, "is neither a file nor a folder nor a link"
                    )


def break_hard_links(attempt: Path) -> None:
    """Copy files of an environment that have other hard links, so that it owns its data."""
    for root, _, names in os.walk(attempt):
        for name in names:
            path = Path(root, name)
            status = path.lstat()
            if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
                draft = path.with_name(f".{name}.copy")
                shutil.copy2(path, draft, follow_symlinks=False)
                draft.replace(path)


def _check_skeleton(attempt: Path, skeleton: Skeleton) -> None:
    for name, target in skeleton.links.items():
        path = attempt / name
        if not path.is_symlink() or str(path.readlink()) != target:
            raise _refused(path, attempt, "is not the link that the node created")
    configuration = attempt / _CONFIGURATION
    if skeleton.configuration is None:
        if _mode_of(configuration):
            raise _refused(configuration, attempt, "makes it depend on another interpreter")
        return
    is_file = stat.S_ISREG(_mode_of(configuration))
    if not is_file or configuration.read_bytes() != skeleton.configuration:
        raise _refused(configuration, attempt, "is not what the node wrote")


def _mode_of(path: Path) -> int:
    try:
        return path.lstat().st_mode
    except OSError:
        return 0


def _check_link(path: Path, inside: str, attempt: Path) -> None:
    target = os.path.realpath(path)
    if target != inside and not target.startswith(f"{inside}/"):
        raise _refused(path, attempt, "is a link out of the environment")


def _seal_file(path: str, status: os.stat_result, attempt: Path) -> None:
    if status.st_mode & (stat.S_ISUID | stat.S_ISGID):
        raise _refused(Path(path), attempt, "has the set-user-ID or set-group-ID bit")
    _own(path, status)
    mode = _READ | (_EXECUTE if status.st_mode & stat.S_IXUSR else 0)
    # Unchanged modes are not set again: a file shared with another environment retains its ctime.
    if stat.S_IMODE(status.st_mode) != mode:
        os.chmod(path, mode)  # noqa: PTH101


def _own(path: str, status: os.stat_result) -> None:
    if status.st_uid and not os.getuid():
        os.chown(path, 0, 0, follow_symlinks=False)


def _refused(path: Path, attempt: Path, why: str) -> StartError:
    name = str(path.relative_to(attempt)).encode("utf-8", "replace").decode()
    return StartError(
        f"The environment is rejected: after the build {name[:200]!r} {why}. Remove the "
        "requirement whose build does this.",
        ReasonCode.ENVIRONMENT_FAILED,
    )
