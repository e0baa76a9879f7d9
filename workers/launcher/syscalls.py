"""System calls that Python 3.11 has no functions for. Each raises OSError with what was tried."""

import ctypes
import errno
import os
import platform
import struct
from typing import Final

LIBC: Final = ctypes.CDLL(None, use_errno=True)

CLONE_NEWNS: Final = 0x00020000
CLONE_NEWCGROUP: Final = 0x02000000
CLONE_NEWUTS: Final = 0x04000000
CLONE_NEWIPC: Final = 0x08000000
CLONE_NEWUSER: Final = 0x10000000
CLONE_NEWPID: Final = 0x20000000
CLONE_NEWNET: Final = 0x40000000

MS_RDONLY: Final = 1
MS_NOSUID: Final = 2
MS_NODEV: Final = 4
MS_NOEXEC: Final = 8
MS_REMOUNT: Final = 32
MS_BIND: Final = 4096
MS_REC: Final = 16384
MS_PRIVATE: Final = 1 << 18
MNT_DETACH: Final = 2

_AT_FDCWD: Final = -100
_AT_RECURSIVE: Final = 0x8000
_MOUNT_SETATTR: Final = 442  # the same on every architecture
_PIVOT_ROOT: Final = {"x86_64": 155, "aarch64": 41, "riscv64": 41}


def failure(action: str) -> OSError:
    """Return the OSError of the call that just failed, with what it tried."""
    number = ctypes.get_errno()
    return OSError(number, f"{action}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """Leave namespaces that the parent shares, see unshare(2)."""
    if LIBC.unshare(flags):
        raise failure(f"unshare {flags:#x}")


def setns(descriptor: int, kind: int) -> None:
    """Enter the namespace behind a descriptor of /proc/PID/ns."""
    if LIBC.setns(descriptor, kind):
        raise failure(f"setns {kind:#x}")


def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    """Mount a file system, see mount(2)."""
    arguments = [os.fsencode(text) or None for text in (source, target, kind)]
    if LIBC.mount(*arguments, ctypes.c_ulong(flags), os.fsencode(data) or None):
        raise failure(f"mount {target}")


def bind(source: str, target: str, *, read_only: bool, devices: bool = False) -> None:
    """Show `source`, and everything mounted below it, at `target` as well."""
    mount(source, target, "", MS_BIND | MS_REC)
    flags = MS_NOSUID | (MS_RDONLY if read_only else 0) | (0 if devices else MS_NODEV)
    restrict_mount(target, flags)


def restrict_mount(target: str, flags: int) -> None:
    """Add MS_RDONLY, MS_NOSUID or MS_NODEV to a mount and everything below it (Linux 5.12)."""
    # MOUNT_ATTR_RDONLY, _NOSUID and _NODEV have the values of their MS_ twins.
    attributes = ctypes.create_string_buffer(struct.pack("QQQQ", flags, 0, 0, 0), 32)
    path = os.fsencode(target)
    size = ctypes.c_size_t(32)
    if LIBC.syscall(_MOUNT_SETATTR, _AT_FDCWD, path, _AT_RECURSIVE, attributes, size):
        raise failure(f"mount_setattr {target}")


def detach(target: str) -> None:
    """Unmount lazily: what is still open below stays open."""
    if LIBC.umount2(os.fsencode(target), MNT_DETACH):
        raise failure(f"umount {target}")


def pivot_root(new_root: str, put_old: str) -> None:
    """Make `new_root` the root of this mount namespace and move the old one to `put_old`."""
    number = _PIVOT_ROOT.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, f"pivot_root: unknown on {platform.machine()}")
    if LIBC.syscall(number, os.fsencode(new_root), os.fsencode(put_old)):
        raise failure(f"pivot_root {new_root}")


def prctl(option: int, value: int, action: str) -> None:
    """Change an attribute of this process, see prctl(2)."""
    if LIBC.prctl(option, value, 0, 0, 0):
        raise failure(action)
