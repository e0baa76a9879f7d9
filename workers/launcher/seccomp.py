"""A filter of system calls (seccomp-BPF) for processes that run user code.

It refuses what widens the kernel's attack surface and no program of data science needs: new
namespaces and mounts, kernel keys (shared by all processes of a Unix user), BPF, performance
counters, io_uring, modules. It follows the default profile of container engines. Refused calls
answer EPERM, and clone3 answers ENOSYS because its flags cannot be inspected: the C library then
falls back to clone. Sockets are of Unix, IP or netlink: others, such as VSOCK, belong to no network
namespace and would lead past the network rule of a project.
"""

import ctypes
import errno
import platform
import struct
from typing import Final

from workers.launcher.syscalls import LIBC, failure

_PR_SET_SECCOMP: Final = 22
_SECCOMP_MODE_FILTER: Final = 2
_LOAD, _JUMP_EQUAL, _JUMP_SET, _RETURN = 0x20, 0x15, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_ALLOW: Final = 0x7FFF0000
_KILL: Final = 0x80000000
_ERRNO: Final = 0x00050000
_X32_BIT: Final = 0x40000000
# CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
_NEW_NAMESPACES: Final = 0x7E020000
_AUDIT_ARCHITECTURE: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_CLONE3: Final = 435
_CLONE: Final = {"x86_64": 56, "aarch64": 220}
_UNSHARE: Final = {"x86_64": 272, "aarch64": 97}
_SOCKETS: Final = {"x86_64": (41, 53), "aarch64": (198, 199)}  # socket, socketpair
_FAMILIES: Final = (1, 2, 10, 16)  # AF_UNIX, AF_INET, AF_INET6, AF_NETLINK
# io_uring_setup, io_uring_enter, io_uring_register, open_tree, move_mount, fsopen, fsconfig,
# fsmount, fspick, mount_setattr, quotactl_fd
_EVERYWHERE: Final = (425, 426, 427, 428, 429, 430, 431, 432, 433, 442, 443)
_REFUSED: Final = {
    "x86_64": (
        *(165, 166, 155, 161, 308),  # mount, umount2, pivot_root, chroot, setns
        *(304, 303, 175, 313, 176),  # open_by_handle_at, name_to_handle_at, *_module
        *(246, 320, 169, 167, 168),  # kexec_load, kexec_file_load, reboot, swapon, swapoff
        *(321, 298, 323, 248, 249, 250),  # bpf, perf_event_open, userfaultfd, keys
        *(163, 179, 103, 172, 173),  # acct, quotactl, syslog, iopl, ioperm
    ),
    "aarch64": (
        *(40, 39, 41, 51, 268),
        *(265, 264, 105, 273, 106),
        *(104, 294, 142, 224, 225),
        *(280, 241, 282, 217, 218, 219),
        *(89, 60, 116),
    ),
}


def is_supported() -> bool:
    """Return whether there is a filter for this machine's architecture."""
    return platform.machine() in _AUDIT_ARCHITECTURE


def install_filter() -> bool:
    """Irrevocably filter system calls of this process and its children. False if unsupported.

    The process must have given up new privileges before. Raises OSError.
    """
    if not is_supported():
        return False
    program = _program(platform.machine())
    instructions = ctypes.create_string_buffer(b"".join(program), 8 * len(program))
    # struct sock_fprog: a count and, aligned, a pointer.
    header = ctypes.create_string_buffer(
        struct.pack("HxxxxxxQ", len(program), ctypes.addressof(instructions)), 16
    )
    mode = ctypes.c_ulong(_SECCOMP_MODE_FILTER)
    if LIBC.prctl(_PR_SET_SECCOMP, mode, header, 0, 0):
        raise failure("seccomp")
    return True


def _program(machine: str) -> list[bytes]:
    refused = (*_EVERYWHERE, *_REFUSED[machine])
    lines = [
        _step(_LOAD, _ARCHITECTURE),
        _step(_JUMP_EQUAL, _AUDIT_ARCHITECTURE[machine], yes=1),
        _step(_RETURN, _KILL),
        _step(_LOAD, _NUMBER),
        _step(_JUMP_SET, _X32_BIT, no=1),
        _step(_RETURN, _ERRNO | errno.ENOSYS),
        _step(_JUMP_EQUAL, _CLONE3, no=1),
        _step(_RETURN, _ERRNO | errno.ENOSYS),
    ]
    for number in refused:
        lines += [_step(_JUMP_EQUAL, number, no=1), _step(_RETURN, _ERRNO | errno.EPERM)]
    for number in (_CLONE[machine], _UNSHARE[machine]):
        lines += [
            _step(_JUMP_EQUAL, number, no=4),
            _step(_LOAD, _FIRST_ARGUMENT),
            _step(_JUMP_SET, _NEW_NAMESPACES, no=1),
            _step(_RETURN, _ERRNO | errno.EPERM),
            _step(_RETURN, _ALLOW),
        ]
    for number in _SOCKETS[machine]:
        lines += _only_families(number)
    return [*lines, _step(_RETURN, _ALLOW)]


def _only_families(number: int) -> list[bytes]:
    known = [
        _step(_JUMP_EQUAL, family, yes=len(_FAMILIES) - index)
        for index, family in enumerate(_FAMILIES)
    ]
    rest = [
        _step(_LOAD, _FIRST_ARGUMENT),
        *known,
        _step(_RETURN, _ERRNO | errno.EAFNOSUPPORT),
        _step(_RETURN, _ALLOW),
    ]
    return [_step(_JUMP_EQUAL, number, no=len(rest)), *rest]


def _step(code: int, value: int, *, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("HBBI", code, yes, no, value)
