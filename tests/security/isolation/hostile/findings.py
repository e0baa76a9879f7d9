"""What an attack found, and the few things that all attacks look at."""

import ctypes
import os
import re
from collections.abc import Callable, Iterator
from typing import Any

CANARY = re.compile(rb"canary-[a-z]+-[0-9a-f]{32}")
LIBC = ctypes.CDLL(None, use_errno=True)
PATIENCE_S = 60
FILE_BYTES = 1 << 16
Targets = dict[str, Any]


class Findings:
    """What one attack saw and did."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.done: set[str] = set()

    def see(self, data: bytes | str) -> None:
        """Look for secrets in what could be read."""
        raw = data.encode(errors="replace") if isinstance(data, str) else data
        self.seen.update(match.decode() for match in CANARY.findall(raw))

    def did(self, action: str) -> None:
        """Note an action that should have been refused."""
        self.done.add(action)

    def read(self, path: str, limit: int = FILE_BYTES) -> bool:
        """Read a file if that is possible."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            return False
        try:
            self.see(os.read(descriptor, limit))
        except OSError:
            return False
        finally:
            os.close(descriptor)
        return True

    def try_(self, action: str, attempt: Callable[..., object], *arguments: object) -> bool:
        """Note the action unless it is refused."""
        try:
            attempt(*arguments)
        except (OSError, ValueError, OverflowError):
            return False
        self.did(action)
        return True


def visible_processes() -> list[int]:
    """Processes that /proc lists, without this one."""
    return [
        int(name) for name in os.listdir("/proc") if name.isdigit() and name != str(os.getpid())
    ]


def ticks_of(pid: int) -> int:
    """When a process started, which tells it from another one with the same number."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return int(file.read().rpartition(")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return -1


def foreign(targets: Targets) -> Iterator[tuple[str, int]]:
    """Processes of others, by the numbers they have outside."""
    for process in targets["processes"]:
        if ticks_of(process["pid"]) in (-1, process["ticks"]):
            yield process["name"], process["pid"]


def list_folder(folder: str) -> list[str]:
    """Names in a folder; none where it cannot be listed."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def ours() -> list[str]:
    """The folders that a task may write."""
    names = ("HOME", "TMPDIR", "SLIPWAY_PERSISTENT_DIR", "SLIPWAY_CACHE", "SLIPWAY_PERSONAL_DIR")
    return [os.getcwd(), *(os.environ[name] for name in names if os.environ.get(name))]


def open_close(path: str, flags: int) -> None:
    """Open a file and leave it as it is."""
    os.close(os.open(path, flags))
