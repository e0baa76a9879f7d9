"""The attacks of user code, and which of them each isolation level stops: the one table.

`tests/security/isolation` runs all of them and compares; SECURITY.md shows the table, and a test
compares it as well, so what the documentation claims is what happens.
"""

from dataclasses import dataclass
from typing import Final

NAMESPACES: Final = "namespaces"
ROOTLESS: Final = "namespaces, no root"
USERS: Final = "users"
CONTAINERS: Final = "containers"
SHARED: Final = "shared"
# Levels of the back end `process`; CONTAINERS is that of the back end `docker`.
LEVELS: Final = (NAMESPACES, ROOTLESS, USERS, SHARED)
COLUMNS: Final = (NAMESPACES, ROOTLESS, USERS, CONTAINERS, SHARED)

STOPPED: Final = "stopped"
OPEN: Final = "open"
# Stopped where the kernel offers Landlock (5.13), and its scopes of signals and sockets (6.12).
LANDLOCK: Final = "Landlock"
SCOPES: Final = "Landlock 6"
OFFLINE: Final = "offline only"
# Nothing but the socket that wakes the agent and whose content nobody reads.
WAKING: Final = "waking only"


@dataclass(frozen=True)
class Attack:
    """One attack: its function in `attacker.py`, its line in the table, its outcome by level."""

    name: str
    title: str
    namespaces: str = STOPPED
    rootless: str = STOPPED
    users: str = STOPPED
    containers: str = STOPPED
    shared: str = STOPPED

    def outcome(self, level: str) -> str:
        """What happens at a level."""
        outcomes = (self.namespaces, self.rootless, self.users, self.containers, self.shared)
        return outcomes[COLUMNS.index(level)]


ATTACKS: Final = (
    Attack("own_memory", "Scan the own memory for what a parent process left there"),
    Attack(
        "memory_of_others",
        "Read the memory of other processes (`/proc/PID/mem`, `process_vm_readv`)",
        shared=LANDLOCK,
    ),
    Attack("debugging", "Attach to other processes (`ptrace`, `pidfd_getfd`)", shared=LANDLOCK),
    Attack(
        "process_files",
        "Read `environ`, `maps`, `fd`, `root` and `cwd` of other processes",
        shared=LANDLOCK,
    ),
    Attack("command_lines", "Read the command lines of other processes", users=OPEN, shared=OPEN),
    Attack("signals", "Signal, stop, slow down or limit other processes", shared=OPEN),
    Attack("descriptors", "Use descriptors inherited from the agent or a warm process"),
    Attack(
        "files",
        "Read, write or list files of other projects and of the installation",
        shared=LANDLOCK,
    ),
    Attack(
        "accounts", "Read `/etc/shadow`, keys of the host, `/root`, `/home`, `/var`", shared=OPEN
    ),
    Attack("walk", "Walk all folders from `/` and read what can be read", shared=LANDLOCK),
    Attack("path_tricks", "Leave by `..`, symbolic links, `/proc/self/root`", shared=LANDLOCK),
    Attack("handles", "Open files by their handles (`open_by_handle_at`)"),
    Attack("hard_links", "Hard-link files of others into own folders", shared=LANDLOCK),
    Attack("privileges", "Gain users, groups or capabilities (set-user-ID programs)", shared=OPEN),
    Attack("devices", "Create or open device nodes", shared=LANDLOCK),
    Attack("mounts", "Mount, unmount, remount, `pivot_root`, `chroot`"),
    Attack("namespaces", "Create or enter namespaces (`unshare`, `clone`, `setns`)"),
    Attack(
        "kernel_calls", "Call `bpf`, `perf_event_open`, `userfaultfd`, `io_uring`, load modules"
    ),
    Attack("socket_families", "Open sockets that are neither Unix, IP nor netlink (VSOCK, ALG)"),
    Attack("keyrings", "Read or add keys of the kernel"),
    Attack("control_groups", "Leave the control group or change its limits", shared=LANDLOCK),
    Attack(
        "kernel_settings",
        "Write `/proc/sys` and `/sys`, be spared when memory runs out",
        shared=LANDLOCK,
    ),
    Attack(
        "path_sockets",
        "Connect to sockets of other tasks and of the agent by path",
        containers=WAKING,
        shared=OPEN,
    ),
    Attack(
        "abstract_sockets",
        "Connect to abstract sockets of other tasks",
        namespaces=SCOPES,
        rootless=SCOPES,
        users=SCOPES,
        shared=SCOPES,
    ),
    Attack(
        "loopback",
        "Reach loopback services of other tasks that ask for no password",
        namespaces=OFFLINE,
        rootless=OFFLINE,
        users=OPEN,
        shared=OPEN,
    ),
    Attack("shared_memory", "Read shared memory and message queues of other tasks", shared=OPEN),
    Attack("leftovers", "Read what an ended task left in shared memory", shared=OPEN),
    Attack("temporary_files", "Read files in `/tmp`", shared=LANDLOCK),
    Attack("races", "Create files where others do (`/tmp`, `/dev/shm`)", users=OPEN, shared=OPEN),
    Attack(
        "planted_code",
        "Plant `sitecustomize`, `.pth`, start-up files where others run them",
        shared=LANDLOCK,
    ),
    Attack("environment", "Change the environment that others run in", shared=OPEN),
    Attack("own_report", "Forge the report of the own task", containers=LANDLOCK, shared=LANDLOCK),
    Attack("core_dumps", "Raise the own limits (core dumps, open files)"),
    Attack("terminals", "Type into terminals (`TIOCSTI`)", shared=LANDLOCK),
)
NAMES: Final = tuple(attack.name for attack in ATTACKS)

_WORDS: Final = {
    STOPPED: "stopped",
    OPEN: "**not stopped**",
    LANDLOCK: "stopped with Landlock",
    SCOPES: "stopped from Linux 6.12",
    OFFLINE: "**not stopped**, unless the network is closed",
    WAKING: "stopped, but for the socket that wakes the agent",
}


def table() -> str:
    """Return the attacks as a table of Markdown, one line an attack and one column a level."""
    lines = [
        f"| user code tries to | {' | '.join(COLUMNS)} |",
        f"|---|{'---|' * len(COLUMNS)}",
        *(
            f"| {attack.title} | {' | '.join(_WORDS[attack.outcome(level)] for level in COLUMNS)} |"
            for attack in ATTACKS
        ),
    ]
    return "\n".join(lines)
