"""Disk usage of a task on its node, measured in small steps.

Allocated blocks count, on the file system of the task's working folder:

- all files in the task's own folders,
- unlinked files that its processes hold open or mapped,
- in folders that it shares with other tasks, files changed since it started, but never more than
  its own processes have written.

A file with several names counts once, and each file counts at least one block. User code changes
the folders during a measurement: everything is opened relative to descriptors, no link is followed,
and memory holds no more than the folders on the way down.
"""

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

_BLOCK_BYTES: Final = 512
# Number of files per step, which takes well below a millisecond.
_FILES_A_STEP: Final = 64
# Each level takes two descriptors. No ordinary program nests folders this deep.
_MOST_LEVELS: Final = 1000
_MOST_LINKED_FILES: Final = 1_000_000
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OWNER_MAY_ALL: Final = 0o700


@dataclass
class Measurement:
    """The counts of a walk so far."""

    own_bytes: int = 0
    shared_bytes: int = 0
    files: int = 0
    too_deep: bool = False

    def held_bytes(self, written_bytes: int) -> int:
        """Return the bytes charged to the task, if its processes wrote so much in all."""
        return self.own_bytes + min(self.shared_bytes, written_bytes)


@dataclass
class _Level:
    descriptor: int
    entries: Iterator[os.DirEntry[str]]
    # Permissions to restore on a folder that its owner could not read.
    mode: int | None = None

    def close(self) -> None:
        if self.mode is not None:
            with suppress(OSError):
                os.fchmod(self.descriptor, self.mode)
        os.close(self.descriptor)
        self.entries.close()  # type: ignore[attr-defined]


@dataclass
class DiskMeter:
    """Measures the folders and open files of one task. Iterate over its steps to proceed."""

    own: Sequence[str]
    shared: Sequence[str] = ()
    # In shared folders only files changed since this time count.
    since_s: float = 0.0
    most_levels: int = _MOST_LEVELS
    result: Measurement = field(default_factory=Measurement)
    _linked: set[int] = field(default_factory=set)
    _device: int = 0

    def measure_own(self, pids: Sequence[int] = ()) -> Iterator[None]:
        """Measure what is the task's alone, and what these processes hold without a name."""
        self._device = os.stat(self.own[0]).st_dev  # noqa: PTH116
        for path in self.own:
            yield from self._walk(path, None)
        nameless: dict[int, int] = {}
        for pid in pids:
            yield from self._open_files(pid, nameless)
            yield
            self._mapped_files(pid, nameless)
            yield
        self.result.own_bytes += sum(nameless.values())

    def shared_steps(self) -> Iterator[None]:
        """Measure what was changed in folders that other tasks may write, too."""
        for path in self.shared:
            if not self.own:
                self._device = os.stat(path).st_dev  # noqa: PTH116
            yield from self._walk(path, self.since_s)

    def _walk(self, path: str, since_s: float | None) -> Iterator[None]:
        levels: list[_Level] = []
        self._descend(levels, path)
        seen = 0
        try:
            while levels:
                try:
                    entry = next(levels[-1].entries, None)
                except OSError:
                    entry = None
                if entry is None:
                    levels.pop().close()
                    continue
                seen += 1
                if seen % _FILES_A_STEP == 0:
                    yield
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                if status.st_dev != self._device:
                    continue
                self._add(status, since_s)
                if stat.S_ISDIR(status.st_mode):
                    self._descend(levels, entry.name)
        finally:
            while levels:
                levels.pop().close()

    def _descend(self, levels: list[_Level], name: str) -> None:
        if len(levels) >= self.most_levels:
            self.result.too_deep = True
            return
        parent = levels[-1].descriptor if levels else None
        descriptor = mode = None
        try:
            descriptor, mode = _open_folder(name, parent)
            if os.fstat(descriptor).st_dev != self._device:
                os.close(descriptor)
                return
            levels.append(_Level(descriptor, os.scandir(descriptor), mode))
        except OSError as error:
            # It is gone, was replaced by a link, or may not be opened.
            self.result.too_deep |= error.errno == errno.EMFILE
            if descriptor is not None:
                os.close(descriptor)

    def _add(self, status: os.stat_result, since_s: float | None) -> None:
        if since_s is not None and status.st_ctime < since_s:
            return
        if status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode):
            if status.st_ino in self._linked:
                return
            if len(self._linked) < _MOST_LINKED_FILES:
                self._linked.add(status.st_ino)
        size = max(status.st_blocks, 1) * _BLOCK_BYTES
        self.result.files += 1
        if since_s is None:
            self.result.own_bytes += size
        else:
            self.result.shared_bytes += size

    def _open_files(self, pid: int, nameless: dict[int, int]) -> Iterator[None]:
        try:
            entries = os.scandir(f"/proc/{pid}/fd")
        except OSError:
            return
        with entries:
            for number, entry in enumerate(_readable_entries(entries)):
                if number % _FILES_A_STEP == _FILES_A_STEP - 1:
                    yield
                with suppress(OSError):
                    self._add_nameless(entry.stat(), nameless)

    def _add_nameless(self, status: os.stat_result, nameless: dict[int, int]) -> None:
        is_ours = status.st_dev == self._device and stat.S_ISREG(status.st_mode)
        if is_ours and status.st_nlink == 0:
            nameless[status.st_ino] = status.st_blocks * _BLOCK_BYTES

    def _mapped_files(self, pid: int, nameless: dict[int, int]) -> None:
        """Count mapped files without a name: by their blocks, or by what is mapped of them."""
        device = f"{os.major(self._device):02x}:{os.minor(self._device):02x}"
        mapped: dict[int, int] = {}
        try:
            with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as lines:  # noqa: PTH123
                for line in lines:
                    if not line.endswith(" (deleted)\n"):
                        continue
                    span, _, _, where, inode = line.split(maxsplit=5)[:5]
                    number = int(inode)
                    if where != device or number in nameless:
                        continue
                    try:
                        # Only root may read these.
                        self._add_nameless(os.stat(f"/proc/{pid}/map_files/{span}"), nameless)  # noqa: PTH116
                    except OSError:
                        first, last = (int(part, 16) for part in span.split("-"))
                        mapped[number] = mapped.get(number, 0) + last - first
        except (OSError, ValueError):
            pass
        for number, size in mapped.items():
            nameless.setdefault(number, size)


def _open_folder(name: str, parent: int | None) -> tuple[int, int | None]:
    """Open a folder, even if its owner has removed all permissions. Raises OSError.

    The second value is the original permissions, if they had to be changed temporarily.
    """
    try:
        descriptor = os.open(name, _FOLDER, dir_fd=parent)
    except PermissionError:
        pass
    else:
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
        if mode & 0o500 == 0o500 or os.geteuid() == 0:
            return descriptor, None
        # It can be listed, but its entries cannot be inspected.
        with suppress(OSError):
            os.fchmod(descriptor, mode | _OWNER_MAY_ALL)
        return descriptor, mode
    place = os.open(name, os.O_PATH | _FOLDER, dir_fd=parent)
    try:
        status = os.fstat(place)
        if status.st_uid != os.geteuid():
            raise PermissionError(f"{name} belongs to another user")
        mode = stat.S_IMODE(status.st_mode)
        os.chmod(f"/proc/self/fd/{place}", mode | _OWNER_MAY_ALL)  # noqa: PTH101
        return os.open(f"/proc/self/fd/{place}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), mode
    finally:
        os.close(place)


def _readable_entries(entries: Iterator[os.DirEntry[str]]) -> Iterator[os.DirEntry[str]]:
    """The entries of a folder in /proc, whose process may end meanwhile."""
    while True:
        try:
            entry = next(entries, None)
        except OSError:
            return
        if entry is None:
            return
        yield entry


@dataclass(frozen=True)
class FreeSpace:
    """The space and files of a file system that are left for ordinary users."""

    free_bytes: int
    is_short: bool

    @classmethod
    def of(cls, path: str, reserve_bytes: int) -> "FreeSpace":
        """Measure free space now. It is short of bytes below the reserve, or of files below 1 %."""
        status = os.statvfs(path)
        free = status.f_bavail * status.f_frsize
        few_files = status.f_files > 0 and status.f_favail * 100 < status.f_files
        return cls(free, free < reserve_bytes or few_files)
