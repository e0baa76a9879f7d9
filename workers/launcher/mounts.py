"""Builds the file system that a sandbox shows: the system read-only, a task's folders, no more.

Runs in a fresh process that nothing else depends on, and needs CAP_SYS_ADMIN in a mount namespace
of its own: real root has it, others get it in a user namespace. The order of the steps is that of
bubblewrap's documentation: a tmpfs becomes the root, the old root is bound from and then detached.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from workers.launcher.syscalls import (
    CLONE_NEWNS,
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_PRIVATE,
    MS_RDONLY,
    MS_REC,
    MS_REMOUNT,
    bind,
    detach,
    mount,
    pivot_root,
    unshare,
)

_OLD: Final = "/.old"
_STAGES: Final = ("/tmp", "/mnt", "/run")  # noqa: S108 - only a mount point in its own namespace
_PROGRAMS: Final = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
# Folders of the system. Neither /home, /root, /srv nor /var, where people and services store data.
_SYSTEM: Final = (
    *("/usr", "/opt", "/nix", "/sys/block", "/sys/bus", "/sys/class", "/sys/dev", "/sys/devices"),
    *("/sys/kernel/mm", "/sys/module"),
)
# Files of /etc that programs read: no shadow, no host keys, no service settings.
_ETC: Final = (
    *("alternatives", "bash.bashrc", "ca-certificates", "debian_version", "fonts", "gai.conf"),
    *("glvnd", "host.conf", "hostname", "inputrc", "ld.so.cache", "ld.so.conf", "ld.so.conf.d"),
    *("localtime", "lsb-release", "machine-id", "magic", "mime.types", "nsswitch.conf"),
    *("OpenCL", "openmpi", "os-release", "pip.conf", "pki", "profile", "profile.d"),
    *("protocols", "resolv.conf", "rpc", "services", "ssl", "terminfo", "timezone"),
    *("vulkan", "xdg"),
)
_DEVICES: Final = ("null", "zero", "full", "random", "urandom", "tty")
_LINKS: Final = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
    "ptmx": "pts/ptmx",
}
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_ROOT_BYTES: Final = 16 << 20
_ROOT_FILES: Final = 20_000


@dataclass(frozen=True)
class View:
    """Files that a sandbox shows. Paths are absolute, and equal inside and outside.

    `hidden` covers folders that would be visible as part of the system. `tmp` is the folder shown
    as /tmp and /var/tmp. `hosts` are more lines of /etc/hosts. `uid` and `gid` own everything
    without another owner, such as the shared memory.
    """

    writable: tuple[str, ...]
    readable: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    tmp: str = ""
    home: str = "/nonexistent"
    uid: int = 0
    gid: int = 0
    shm_bytes: int = 64 << 20
    gpus: bool = False
    hosts: tuple[str, ...] = ()
    offline: bool = False

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> "View":
        """The inverse of `dataclasses.asdict`."""
        lists = {name: tuple(value) for name, value in fields.items() if isinstance(value, list)}
        return cls(**{**fields, **lists})


@dataclass(frozen=True)
class _Bind:
    """A place of the new root: `source` of the old one, or an empty folder where it is None."""

    target: str
    source: str | None
    read_only: bool = True
    devices: bool = False


def graphics_devices() -> list[str]:
    """Return the device nodes of graphics cards and fast networks that this machine has."""
    try:
        names = sorted(os.listdir("/dev"))  # noqa: PTH208 - runs in a freshly forked process
    except OSError:
        return []
    single = [name for name in ("dri", "kfd", "infiniband") if name in names]
    return [f"/dev/{name}" for name in (*single, *names) if name in single or name[:6] == "nvidia"]


def build_root(view: View) -> None:
    """Create a mount namespace for this process with that view as its root. Raises OSError."""
    binds = list(_binds(view))
    stage = next(path for path in _STAGES if Path(path).is_dir())
    unshare(CLONE_NEWNS)
    mount("", "/", "", MS_REC | MS_PRIVATE)
    limits = f"mode=0755,size={_ROOT_BYTES},nr_inodes={_ROOT_FILES}"
    mount("slipway", stage, "tmpfs", MS_NOSUID | MS_NODEV, limits)
    os.mkdir(f"{stage}{_OLD}", 0o700)  # noqa: PTH102 - plain strings, because start time matters
    pivot_root(stage, f"{stage}{_OLD}")
    os.chdir("/")
    # Before the old /proc is detached: the kernel requires a fully visible one for a new one.
    os.mkdir("/proc", 0o555)  # noqa: PTH102
    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    for folder in ("/dev", "/etc", "/run", "/sys", "/tmp", "/var"):  # noqa: S108
        os.mkdir(folder, 0o755)  # noqa: PTH102
    os.symlink("/tmp", "/var/tmp")  # noqa: S108, PTH211
    _link_programs()
    # Before the binds, which may add to them.
    _fill_dev(view)
    _fill_etc(view)
    for entry in binds:
        _show(entry)
    for entry in binds:
        # After all binds, because binds below a hidden folder needed mount points in it.
        if entry.source is None and os.path.ismount(entry.target):
            mount("", entry.target, "", MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)
    detach(_OLD)
    os.rmdir(_OLD)  # noqa: PTH106
    mount("", "/", "", MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)


def _binds(view: View) -> Iterator[_Bind]:
    """Yield the bind mounts, outer folders before inner ones, resolved in the old root."""
    entries: dict[str, _Bind] = {}

    def add(path: str, *, read_only: bool, devices: bool = False) -> None:
        source = os.path.realpath(path)
        if not os.path.exists(source):  # noqa: PTH110
            return
        for target in (source, os.path.normpath(path)):
            entries[target] = _Bind(target, source, read_only, devices)

    for path in (*_PROGRAMS, *_SYSTEM):
        if not os.path.islink(path):  # noqa: PTH114
            add(path, read_only=True)
    for path in view.readable:
        add(path, read_only=True)
    for path in map(os.path.realpath, view.hidden):
        if os.path.isdir(path):  # noqa: PTH112
            entries[path] = _Bind(path, None)
    for path in view.writable:
        add(path, read_only=False)
    if view.tmp:
        entries["/tmp"] = _Bind("/tmp", os.path.realpath(view.tmp), read_only=False)  # noqa: S108
    for path in graphics_devices() if view.gpus else ():
        add(path, read_only=False, devices=True)
    # Outer folders first, because mounting one hides everything mounted inside it before.
    return iter(sorted(entries.values(), key=lambda entry: entry.target.count("/")))


def _link_programs() -> None:
    for path in _PROGRAMS:
        with suppress(OSError):
            os.symlink(os.readlink(f"{_OLD}{path}"), path)  # noqa: PTH115, PTH211


def _show(entry: _Bind) -> None:
    if entry.source is None:
        # Even if nothing is visible there: entries below may be in folders that the task can write.
        os.makedirs(entry.target, 0o755, exist_ok=True)  # noqa: PTH103
        mount("slipway", entry.target, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=1m")
        return
    source = f"{_OLD}{entry.source}"
    if os.path.isdir(source):  # noqa: PTH112
        os.makedirs(entry.target, 0o755, exist_ok=True)  # noqa: PTH103
    else:
        os.makedirs(os.path.dirname(entry.target), 0o755, exist_ok=True)  # noqa: PTH103, PTH120
        if not os.path.lexists(entry.target):
            os.close(os.open(entry.target, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW, 0o644))
    bind(source, entry.target, read_only=entry.read_only, devices=entry.devices)


def _fill_dev(view: View) -> None:
    for name in _DEVICES:
        target = f"/dev/{name}"
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o666))
        bind(f"{_OLD}{target}", target, read_only=False, devices=True)
    for name, goal in _LINKS.items():
        os.symlink(goal, f"/dev/{name}")  # noqa: PTH211
    os.mkdir("/dev/pts", 0o755)  # noqa: PTH102
    options = "newinstance,ptmxmode=0666,mode=0620"
    mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, options)
    os.mkdir("/dev/shm", 0o777)  # noqa: PTH102, S108
    options = f"mode=1777,size={view.shm_bytes},uid={view.uid},gid={view.gid}"
    mount("shm", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, options)  # noqa: S108
    # System V memory as well, if the kernel allows that in our own IPC namespace.
    with suppress(OSError):
        # Bytes, like everything written here: Python cannot load a codec before /usr is mounted.
        pages = str(view.shm_bytes // _PAGE_BYTES).encode()
        Path("/proc/sys/kernel/shmall").write_bytes(pages)


def _fill_etc(view: View) -> None:
    for name in _ETC:
        source, target = f"{_OLD}/etc/{name}", f"/etc/{name}"
        try:
            mode = os.lstat(source).st_mode
        except OSError:
            continue
        if stat.S_ISDIR(mode):
            os.mkdir(target, 0o755)  # noqa: PTH102
            bind(source, target, read_only=True)
        elif stat.S_ISREG(mode):
            _write(target, Path(source).read_bytes())
        elif name == "resolv.conf":
            _write(target, _content_behind(source))
        else:
            os.symlink(os.readlink(source), target)  # noqa: PTH115, PTH211
    _write("/etc/passwd", _passwd(view).encode())
    group = f"root:x:0:\nslipway:x:{view.gid}:\nnogroup:x:65534:\n"
    _write("/etc/group", group.encode())
    known = "127.0.0.1 localhost\n::1 localhost\n"
    if not view.offline:
        with suppress(OSError):
            known = Path(f"{_OLD}/etc/hosts").read_text("utf-8", errors="replace")
    _write("/etc/hosts", "\n".join((known.rstrip("\n"), *view.hosts, "")).encode())


def _content_behind(link: str) -> bytes:
    """Read a link of the old root, which resolves against that root and not against ours."""
    path = link
    for _ in range(8):
        try:
            goal = os.readlink(path)  # noqa: PTH115
        except OSError:
            break
        folder = os.path.dirname(path)  # noqa: PTH120
        path = f"{_OLD}{goal}" if goal.startswith("/") else os.path.normpath(f"{folder}/{goal}")
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def _passwd(view: View) -> str:
    lines = ["root:x:0:0:root:/nonexistent:/usr/sbin/nologin"]
    if view.uid:
        lines.append(f"slipway:x:{view.uid}:{view.gid}:Slipway:{view.home}:/bin/sh")
    else:
        lines = [f"slipway:x:0:0:Slipway:{view.home}:/bin/sh"]
    return "\n".join((*lines, "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin", ""))


def _write(path: str, content: bytes) -> None:
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    try:
        os.write(descriptor, content)
    finally:
        os.close(descriptor)
