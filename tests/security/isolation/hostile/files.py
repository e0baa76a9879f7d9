"""Attacks on files, by path, by link and by handle."""

import ctypes
import os
import stat
import struct
import time

from tests.security.isolation.hostile.findings import (
    FILE_BYTES,
    LIBC,
    PATIENCE_S,
    Findings,
    Targets,
    list_folder,
    open_close,
    ours,
)


def files(findings: Findings, targets: Targets) -> None:
    for path in targets["paths"]:
        if findings.read(path):
            findings.did(f"read {path}")
        findings.try_(f"write {path}", open_close, path, os.O_WRONLY)
        findings.try_(f"remove beside {path}", os.rename, path, f"{path}.moved")
    for folder in targets["folders"]:
        if set(list_folder(folder)) & set(targets["names"]):
            findings.did(f"list {folder}")
        place = f"{folder}/planted-{os.getpid()}"
        if findings.try_(f"write into {folder}", open_close, place, 0o101):
            os.unlink(place)


def accounts(findings: Findings, targets: Targets) -> None:
    for name in ("shadow", "shadow-", "gshadow", "sudoers", "ssh/ssh_host_ed25519_key"):
        findings.try_(f"read /etc/{name}", open_close, f"/etc/{name}", 0)
    for name in ("/root", "/var/lib", "/var/log", "/home", "/srv"):
        if list_folder(name) and _is_of_machine(name, targets):
            findings.did(f"list {name}")


def _is_of_machine(folder: str, targets: Targets) -> bool:
    """Tell the folder of the machine from that of a container's image."""
    status = os.stat(folder)
    known = targets["machine"].get(folder)
    return known is None or [status.st_dev, status.st_ino] == known


def walk(findings: Findings, targets: Targets) -> None:
    """Read whatever a walk from the root finds, within a bound."""
    skipped = ("/proc", "/sys", "/usr", "/nix", *targets["programs"])
    waiting, seen = ["/"], 0
    deadline = time.monotonic() + PATIENCE_S / 2
    while waiting and seen < 50_000 and time.monotonic() < deadline:
        folder = waiting.pop()
        try:
            entries = list(os.scandir(folder))
        except OSError:
            continue
        for entry in entries:
            seen += 1
            try:
                if entry.is_dir(follow_symlinks=False):
                    if not entry.path.startswith(skipped):
                        waiting.append(entry.path)
                elif entry.is_file(follow_symlinks=False) and entry.stat().st_size < 1 << 24:
                    findings.read(entry.path)
            except OSError:
                continue


def path_tricks(findings: Findings, targets: Targets) -> None:
    roots = (
        "/proc/self/root",
        "/proc/1/root",
        "/proc/self/cwd/../../../../../../..",
        "/.old",
        "//",
    )
    link = f"{os.getcwd()}/link-{os.getpid()}"
    for path in targets["paths"]:
        for root in roots:
            findings.read(f"{root}{path}")
        os.symlink(path, link)
        findings.read(link)
        os.unlink(link)
    descriptor = os.open(".", os.O_RDONLY)
    try:
        for _ in range(64):
            descriptor = os.open("..", os.O_RDONLY, dir_fd=descriptor)
    except OSError:
        pass
    for path in targets["paths"]:
        try:
            file = os.open(path.lstrip("/"), os.O_RDONLY, dir_fd=descriptor)
            findings.see(os.read(file, FILE_BYTES))
        except OSError:
            continue


def handles(findings: Findings, targets: Targets) -> None:
    """A file by its handle, which no path is checked for (the attack called "shocker")."""
    for folder in ("/", "/etc", os.getcwd()):
        try:
            mount = os.open(folder, os.O_RDONLY)
        except OSError:
            continue
        for inode in (2, *targets["inodes"]):
            handle = ctypes.create_string_buffer(struct.pack("IiII", 8, 1, inode, 0), 16)
            file = LIBC.syscall(304, mount, handle, os.O_RDONLY)
            if file >= 0:
                findings.did("open_by_handle_at")


def hard_links(findings: Findings, targets: Targets) -> None:
    """A second name, in our own folder, for a file that is not ours."""
    for folder in ours():
        for source in (
            *targets["paths"],
            "/etc/shadow",
            "/etc/passwd",
            "/usr/bin/su",
            "/usr/bin/id",
        ):
            name = f"{folder}/hard-{os.getpid()}"
            if findings.try_(f"link {source}", os.link, source, name):
                findings.read(name)
                os.unlink(name)


def devices(findings: Findings, _targets: Targets) -> None:
    places = (*ours(), "/dev", "/dev/shm", "/tmp")
    for folder in places:
        for kind, number in ((stat.S_IFCHR, os.makedev(1, 1)), (stat.S_IFBLK, os.makedev(254, 0))):
            path = f"{folder}/node-{os.getpid()}"
            if findings.try_("mknod", os.mknod, path, kind | 0o600, number):
                os.unlink(path)
    names = ("mem", "kmsg", "vda", "sda", "fuse", "kvm", "loop0", "loop-control", "nvram", "port")
    for name in (*names, "net/tun", "hwrng", "vhost-net", "mapper/control", "cpu_dma_latency"):
        findings.try_(f"open /dev/{name}", open_close, f"/dev/{name}", os.O_RDWR)


def temporary_files(findings: Findings, _targets: Targets) -> None:
    for folder in ("/tmp", "/var/tmp"):
        for name in list_folder(folder):
            findings.read(f"{folder}/{name}")
            for inner in list_folder(f"{folder}/{name}"):
                findings.read(f"{folder}/{name}/{inner}")


def races(findings: Findings, targets: Targets) -> None:
    """Take names that another task may use next, in the folders of the machine itself."""
    for folder, place in targets["common"].items():
        link = f"{folder}/race-{os.getpid()}"
        try:
            os.symlink("/etc/passwd", link)
        except OSError:
            continue
        os.unlink(link)
        status = os.stat(folder)
        if [status.st_dev, status.st_ino] == place:
            findings.did(f"create files in {folder} of the machine")


def planted_code(findings: Findings, targets: Targets) -> None:
    """Create files where a process of another project would run them. (None is left.)"""
    for folder in targets["executed"]:
        for name in (f"planted-{os.getpid()}.pth", "usercustomize.py", ".bashrc"):
            path = f"{folder}/{name}"
            if findings.try_(f"plant {path}", open_close, path, 0o301):
                os.unlink(path)
    for path in ("/etc/ld.so.preload", "/etc/profile.d/planted.sh", "/etc/pip.conf"):
        findings.try_(f"plant {path}", open_close, path, 0o101)


def environment(findings: Findings, targets: Targets) -> None:
    """Change the environment that tasks of all projects run in. (It is opened, never written.)"""
    for path in targets["environment"]:
        flags = os.O_WRONLY | os.O_APPEND
        findings.try_(f"change {path}", open_close, path, flags)
        findings.try_(f"chmod {path}", os.chmod, path, os.stat(path).st_mode)


def own_report(findings: Findings, targets: Targets) -> None:
    """Forge what the supervisor of this task writes down."""
    for path in targets["own_state"]:
        findings.read(path)
        findings.try_(f"forge {path}", open_close, path, os.O_WRONLY | os.O_CREAT)
        findings.try_(f"remove {path}", os.rename, path, f"{path}.gone")
