"""Irrevocable restrictions before user code runs: files (Landlock), capabilities, system calls.

Landlock needs neither root nor a container. It works from Linux 5.13 on if the kernel enables it.
Child processes inherit all restrictions, and none can be undone.
"""

import ctypes
import os
import resource
import signal
import stat
import struct
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from workers.launcher.seccomp import install_filter

_LIBC = ctypes.CDLL(None, use_errno=True)
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF, _CAPSET = 444, 445, 446, 126
_CAPSET_BY_MACHINE = {"aarch64": 91, "riscv64": 91}
_PR_SET_PDEATHSIG, _PR_CAPBSET_DROP, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 24, 36, 38
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
_CAPABILITY_VERSION_3 = 0x20080522
_VERSION_QUESTION = 1
_RULE_PATH_BENEATH = 1

# Bits of the access rights, as the kernel's landlock.h numbers them.
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_ALL_OF_FIRST_ABI = (1 << 13) - 1
_REFER, _TRUNCATE, _IOCTL_DEVICE = 1 << 13, 1 << 14, 1 << 15
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_OF_A_FILE = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE
_SCOPE_ABSTRACT_SOCKETS, _SCOPE_SIGNALS = 1, 2

SYSTEM_READABLE: Final = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix"),
    *("/proc", "/sys", "/run/systemd/resolve", "/var/lib/dpkg", "/snap"),
)
DEVICES: Final = (
    *("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"),
    *("/dev/ptmx", "/dev/pts", "/dev/shm", "/dev/dri", "/dev/kfd", "/dev/infiniband"),  # noqa: S108
)


@dataclass(frozen=True)
class Confinement:
    """Places that stay reachable. `outermost` also keeps signals and abstract sockets inside.

    Folders below `listable` show their names and nothing else.
    """

    writable: tuple[str, ...]
    readable: tuple[str, ...] = field(default=())
    listable: tuple[str, ...] = field(default=())
    outermost: bool = False


def landlock_version() -> int:
    """Return the Landlock ABI version of the kernel, or 0 if it has none."""
    syscall: int = _LIBC.syscall(_CREATE_RULESET, None, 0, _VERSION_QUESTION)
    return max(syscall, 0)


def confine(confinement: Confinement) -> bool:
    """Deny access to every file outside the confinement. Return False without Landlock.

    Raises OSError if the kernel supports Landlock but refuses.
    """
    version = landlock_version()
    forbid_new_privileges()
    if not version:
        return False
    handled = _ALL_OF_FIRST_ABI
    handled |= _REFER if version >= 2 else 0
    handled |= _TRUNCATE if version >= 3 else 0
    handled |= _IOCTL_DEVICE if version >= 5 else 0
    scoped = _SCOPE_ABSTRACT_SOCKETS | _SCOPE_SIGNALS if confinement.outermost else 0
    ruleset = _create_ruleset(version, handled, scoped)
    try:
        _allow(ruleset, (*confinement.writable, *DEVICES, *_graphics_devices()), handled)
        _allow(ruleset, (*confinement.readable, *SYSTEM_READABLE), handled & _READ)
        _allow(ruleset, confinement.listable, _READ_DIR)
        if _LIBC.syscall(_RESTRICT_SELF, ruleset, 0):
            raise _last_error("landlock_restrict_self")
    finally:
        os.close(ruleset)
    return True


def _create_ruleset(version: int, handled: int, scoped: int) -> int:
    attributes = struct.pack("QQQ", handled, 0, scoped)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    buffer = ctypes.create_string_buffer(attributes[:size], size)
    ruleset: int = _LIBC.syscall(_CREATE_RULESET, buffer, size, 0)
    if ruleset < 0:
        raise _last_error("landlock_create_ruleset")
    return ruleset


def _allow(ruleset: int, paths: Iterable[str], access: int) -> None:
    for path in paths:
        try:
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue  # a missing path needs no rule
        try:
            is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
            allowed = access if is_folder else access & _OF_A_FILE
            rule = ctypes.create_string_buffer(struct.pack("<Qi", allowed, descriptor), 12)
            if _LIBC.syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, rule, 0):
                raise _last_error(f"landlock_add_rule {path}")
        finally:
            os.close(descriptor)


def _graphics_devices() -> list[str]:
    try:
        names = os.listdir("/dev")  # noqa: PTH208 - runs in a freshly forked rank: keep it small
    except OSError:
        return []
    return [f"/dev/{name}" for name in names if name.startswith("nvidia")]


def _last_error(doing: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{doing}: {os.strerror(number)}")


def forbid_new_privileges() -> None:
    """From here on no set-user-id program gives back what was given up."""
    _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def scope_signals_and_sockets() -> bool:
    """Confine signals and abstract sockets (Linux 6.12). Return False if unsupported."""
    version = landlock_version()
    if version < 6:
        return False
    forbid_new_privileges()
    ruleset = _create_ruleset(version, 0, _SCOPE_ABSTRACT_SOCKETS | _SCOPE_SIGNALS)
    try:
        if _LIBC.syscall(_RESTRICT_SELF, ruleset, 0):
            raise _last_error("landlock_restrict_self")
    finally:
        os.close(ruleset)
    return True


def drop_bounding_set() -> None:
    """Let no program that is started later gain a capability.

    Does nothing without CAP_SETPCAP, where none can be gained either.
    """
    for capability in range(64):
        if _LIBC.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0):
            break


def drop_capabilities() -> None:
    """Drop all capabilities, in this user namespace or in all."""
    drop_bounding_set()
    _LIBC.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    header = ctypes.create_string_buffer(struct.pack("Ii", _CAPABILITY_VERSION_3, 0), 8)
    nothing = ctypes.create_string_buffer(24)
    number = _CAPSET_BY_MACHINE.get(os.uname().machine, _CAPSET)
    if _LIBC.syscall(number, header, nothing):
        raise _last_error("capset")


def die_with_parent(parent: int, number: int, *, parent_is_outside: bool = False) -> bool:
    """Request a signal for when the parent dies. Return False if it is already dead.

    A parent outside of this PID namespace is seen as 0. Changing the user undoes this.
    """
    _LIBC.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
    return os.getppid() == (0 if parent_is_outside else parent)


def adopt_orphans() -> None:
    """Become the parent of every descendant that loses its own."""
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def main() -> None:
    """Confine this process and become another program.

    Arguments: `-w PATH` and `-r PATH`, repeated, then `--` and the program with its arguments.
    """
    writable: list[str] = []
    readable: list[str] = []
    arguments = iter(sys.argv[2:])
    for argument in arguments:
        if argument == "--":
            break
        (writable if argument == "-w" else readable).append(next(arguments))
    program = list(arguments)
    # The program is useless without its agent. (Tasks are not started this way.)
    die_with_parent(os.getppid(), signal.SIGKILL)
    confine(Confinement(tuple(writable), tuple(readable), outermost=True))
    drop_capabilities()
    install_filter()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.execv(program[0], program)  # noqa: S606 - no shell is wanted
