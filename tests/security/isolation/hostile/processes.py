"""Attacks on other processes, and on the own one for what it inherited."""

import ctypes
import errno
import fcntl
import os
import resource
import signal
import socket
import struct
import time

from tests.security.isolation.hostile.findings import (
    FILE_BYTES,
    LIBC,
    Findings,
    Targets,
    foreign,
    open_close,
    visible_processes,
)

REGION_BYTES = 1 << 28


def scan_memory(findings: Findings, pid: int | str) -> bool:
    """Look for secrets in the memory of a process, by /proc."""
    try:
        with open(f"/proc/{pid}/maps") as maps:
            lines = maps.read().splitlines()
        memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
    except OSError:
        return False
    for line in lines:
        span, rights = line.split()[:2]
        if not rights.startswith("r") or "[v" in line:
            continue
        begin, end = (int(part, 16) for part in span.split("-"))
        try:
            findings.see(os.pread(memory, min(end - begin, REGION_BYTES), begin))
        except (OSError, OverflowError):
            continue
    os.close(memory)
    return True


def own_memory(findings: Findings, _targets: Targets) -> None:
    """What a warm process or a supervisor may have left in a child of theirs."""
    scan_memory(findings, "self")


def memory_of_others(findings: Findings, targets: Targets) -> None:
    for pid in visible_processes():
        scan_memory(findings, pid)
    for name, pid in foreign(targets):
        findings.try_(f"open memory of {name}", open_close, f"/proc/{pid}/mem", 2)
        buffer = ctypes.create_string_buffer(16)
        local = struct.pack("QQ", ctypes.addressof(buffer), 16)
        remote = struct.pack("QQ", 0x400000, 16)
        if (
            LIBC.process_vm_readv(pid, local, 1, remote, 1, 0) >= 0
            or ctypes.get_errno() == errno.EFAULT
        ):
            findings.did(f"process_vm_readv of {name}")


def debugging(findings: Findings, targets: Targets) -> None:
    for name, pid in foreign(targets):
        # PTRACE_SEIZE does not stop the other one.
        if LIBC.ptrace(0x4206, pid, None, None) == 0:
            findings.did(f"ptrace {name}")
        descriptor = LIBC.syscall(434, pid, 0)
        if descriptor >= 0 and LIBC.syscall(438, descriptor, 0, 0) >= 0:
            findings.did(f"pidfd_getfd of {name}")


def process_files(findings: Findings, targets: Targets) -> None:
    for pid in {*visible_processes(), *(pid for _, pid in foreign(targets))}:
        for name in ("environ", "maps", "auxv", "stack"):
            findings.read(f"/proc/{pid}/{name}", 1 << 20)
        for place in ("root", "cwd"):
            for path in targets["paths"]:
                findings.read(f"/proc/{pid}/{place}{path}")
        try:
            for number in os.listdir(f"/proc/{pid}/fd"):
                findings.read(f"/proc/{pid}/fd/{number}")
        except OSError:
            continue


def command_lines(findings: Findings, targets: Targets) -> None:
    for pid in {*visible_processes(), *(pid for _, pid in foreign(targets))}:
        findings.read(f"/proc/{pid}/cmdline")
        findings.read(f"/proc/{pid}/comm")


def signals(findings: Findings, targets: Targets) -> None:
    for name, pid in foreign(targets):
        findings.try_(f"signal {name}", os.kill, pid, signal.SIGCONT)
        findings.try_(f"reprioritise {name}", os.setpriority, 0, pid, 19)
        findings.try_(f"bind {name}", os.sched_setaffinity, pid, {0})
        findings.try_(
            f"limit {name}",
            resource.prlimit,
            pid,
            resource.RLIMIT_CORE,
        )
    for number in (signal.SIGSTOP, signal.SIGKILL):
        try:
            os.kill(1, number)
        except OSError:
            continue
    time.sleep(0.05)
    with open("/proc/1/stat") as file:
        if file.read().rpartition(")")[2].split()[0] in "TZ":
            findings.did("stop the first process")


def descriptors(findings: Findings, _targets: Targets) -> None:
    """Files that were open in whoever started this process."""
    own = {os.path.realpath(f"/proc/self/fd/{number}") for number in (0, 1, 2)}
    for number in os.listdir("/proc/self/fd"):
        try:
            goal = os.readlink(f"/proc/self/fd/{number}")
            os.lseek(int(number), 0, os.SEEK_CUR)
        except OSError:
            continue
        if goal not in own and not goal.startswith("/proc/"):
            try:
                findings.see(os.pread(int(number), FILE_BYTES, 0))
            except OSError:
                continue


def privileges(findings: Findings, targets: Targets) -> None:
    with open("/proc/self/status") as file:
        status = dict(line.split(":", 1) for line in file if ":" in line)
    for name in ("CapEff", "CapPrm", "CapInh", "CapAmb"):
        if int(status[name], 16):
            findings.did(f"hold capabilities {name}")
    if int(status["NoNewPrivs"]) != 1:
        findings.did("gain privileges by exec")
    if os.geteuid() != 0:
        findings.try_("setuid 0", os.setuid, 0)
        findings.try_("setgid 0", os.setgid, 0)
        findings.try_("nice -20", os.setpriority, 0, 0, -20)
    findings.try_("setgroups", os.setgroups, [0])
    findings.try_("sethostname", socket.sethostname, "attacked")
    if os.geteuid() == targets["agent_uid"] and not targets["rootless"]:
        findings.did("run as the user of the agent")


def core_dumps(findings: Findings, _targets: Targets) -> None:
    findings.try_("raise the limit of core dumps", resource.setrlimit, resource.RLIMIT_CORE, (1, 1))
    findings.try_("raise the limit of files", _raise, resource.RLIMIT_NOFILE)


def _raise(limit: int) -> None:
    _, hard = resource.getrlimit(limit)
    resource.setrlimit(limit, (hard + 1, hard + 1))


def terminals(findings: Findings, _targets: Targets) -> None:
    """Type into the terminal of whoever started the platform."""
    for path in ("/dev/tty", "/dev/console", "/dev/tty0", "/dev/pts/0", "/dev/pts/1"):
        try:
            terminal = os.open(path, os.O_RDWR | os.O_NOCTTY)
        except OSError:
            continue
        findings.try_(f"type into {path}", fcntl.ioctl, terminal, 0x5412, b"x")
