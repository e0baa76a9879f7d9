"""Attacks on the boundary itself: mounts, namespaces, control groups, system calls."""

import ctypes
import errno
import os
import signal
import socket
import struct

from tests.security.isolation.hostile.findings import LIBC, Findings, Targets, foreign, open_close

FAMILIES = (
    *(
        "AF_VSOCK",
        "AF_PACKET",
        "AF_ALG",
        "AF_BLUETOOTH",
        "AF_CAN",
        "AF_TIPC",
        "AF_RDS",
        "AF_QIPCRTR",
    ),
    *("AF_KEY", "AF_X25", "AF_APPLETALK"),
)
CALLS = {
    "bpf": (321, 5, 0, 0),
    "perf_event_open": (298, 0, 0, -1, -1, 0),
    "userfaultfd": (323, 0),
    "io_uring_setup": (425, 1, 0),
    "kexec_load": (246, 0, 0, 0, 0),
    "init_module": (175, 0, 0, 0),
    "iopl": (172, 3),
    "fsopen": (430, b"tmpfs", 0),
    "open_tree": (428, -100, b"/", 1),
    "swapoff": (168, b"/nonexistent"),
    "syslog": (103, 3, None, 0),
}


def mounts(findings: Findings, _targets: Targets) -> None:
    folder = os.getcwd().encode()
    if LIBC.mount(b"none", folder, b"tmpfs", 0, None) == 0:
        findings.did("mount")
    if LIBC.mount(b"proc", folder, b"proc", 0, None) == 0:
        findings.did("mount proc")
    for target in (b"/etc", b"/proc", b"/dev/shm", b"/sys/class", b"/tmp", folder):
        if LIBC.umount2(target, 2) == 0:
            findings.did(f"unmount {target.decode()}")
        if LIBC.mount(None, target, None, 32 | 4096, None) == 0:
            findings.did(f"remount {target.decode()}")
    if LIBC.syscall(155, b".", b".") == 0:
        findings.did("pivot_root")
    findings.try_("chroot", os.chroot, os.getcwd())


def namespaces(findings: Findings, targets: Targets) -> None:
    for name, flag in (("user", 1 << 28), ("mount", 1 << 17), ("net", 1 << 30), ("pid", 1 << 29)):
        if LIBC.unshare(flag) == 0:
            findings.did(f"unshare {name}")
        # clone with a new namespace; the child ends at once.
        child = LIBC.syscall(56, flag | signal.SIGCHLD, 0, 0, 0, 0)
        if child == 0:
            os._exit(0)
        if child > 0:
            findings.did(f"clone {name}")
    arguments = ctypes.create_string_buffer(struct.pack("QQQQQQQQ", 1 << 28, 0, 0, 0, 17, 0, 0, 0))
    child = LIBC.syscall(435, arguments, 64)
    if child == 0:
        os._exit(0)
    if child > 0:
        findings.did("clone3 user")
    for pid in (1, *(pid for _, pid in foreign(targets))):
        for name in ("mnt", "pid", "net", "ipc", "user"):
            try:
                descriptor = os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY)
            except OSError:
                continue
            if LIBC.setns(descriptor, 0) == 0:
                findings.did(f"setns {name} of {pid}")


def kernel_calls(findings: Findings, _targets: Targets) -> None:
    if os.uname().machine != "x86_64":
        return
    for name, (number, *arguments) in CALLS.items():
        if LIBC.syscall(number, *arguments) >= 0:
            findings.did(name)
        elif ctypes.get_errno() not in (errno.EPERM, errno.ENOSYS, errno.EACCES):
            # Refused for its arguments: the call itself is open.
            findings.did(f"{name} ({os.strerror(ctypes.get_errno())})")


def socket_families(findings: Findings, _targets: Targets) -> None:
    """Kinds of sockets that no network namespace separates, or that no program here needs."""
    for name in FAMILIES:
        family = getattr(socket, name, None)
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
            if family is not None and findings.try_(name, socket.socket, family, kind):
                break


def keyrings(findings: Findings, targets: Targets) -> None:
    """Keys of the kernel, which are kept by user and not by process."""
    buffer = ctypes.create_string_buffer(4096)
    for ring in (-3, -4, -5):
        key = LIBC.syscall(250, 10, ring, b"user", targets["key"].encode(), 0)
        if key >= 0:
            findings.did("keyctl search")
            if LIBC.syscall(250, 11, key, buffer, 4096) > 0:
                findings.see(buffer.raw)
    if LIBC.syscall(248, b"user", b"planted", b"x", 1, -4) >= 0:
        findings.did("add_key")


def control_groups(findings: Findings, targets: Targets) -> None:
    for folder in targets["control_groups"]:
        for name in ("cgroup.procs", "tasks", "release_agent", "notify_on_release", "memory.max"):
            for place in (folder, os.path.dirname(folder), "/sys/fs/cgroup"):
                path = f"{place}/{name}"
                findings.try_(f"open {path}", open_close, path, os.O_WRONLY)
        findings.try_(f"mkdir in {folder}", os.mkdir, f"{folder}/escaped")


def kernel_settings(findings: Findings, _targets: Targets) -> None:
    for path in (
        *("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sysrq-trigger"),
        *("/proc/sys/vm/drop_caches", "/proc/sys/net/ipv4/ip_forward", "/proc/sys/kernel/modprobe"),
        *("/proc/sys/fs/binfmt_misc/register", "/sys/kernel/uevent_helper", "/proc/kcore"),
        *("/sys/module/tcp_cubic/uevent", "/sys/class/net/lo/mtu", "/proc/sys/kernel/shmmax"),
    ):
        findings.try_(f"write {path}", open_close, path, os.O_WRONLY)
    findings.try_("spare itself from the OOM killer", _spare_itself)


def _spare_itself() -> None:
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("-1000")
