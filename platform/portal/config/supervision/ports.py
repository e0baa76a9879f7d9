"""Check before the start whether a port is free, and if not, name the process that uses it."""

import contextlib
import errno
import socket
from dataclasses import dataclass
from pathlib import Path

from portal.config.supervision.errors import StartError

_PROC = Path("/proc")
_LISTEN = "0A"


@dataclass(frozen=True)
class ListeningPort:
    """A port that a process of ours will listen on, and the setting that defines it."""

    variable: str
    host: str
    port: int


def _family_of(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _bind_error(item: ListeningPort) -> OSError | None:
    with socket.socket(_family_of(item.host), socket.SOCK_STREAM) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((item.host, item.port))
            trial.listen(1)
        except OSError as error:
            return error
    return None


def _listening_inodes(port: int) -> set[str]:
    inodes = set()
    for table in ("tcp", "tcp6"):
        try:
            rows = (_PROC / "net" / table).read_text().splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            fields = row.split()
            local_port = int(fields[1].rpartition(":")[2], 16)
            if local_port == port and fields[3] == _LISTEN:
                inodes.add(fields[9])
    return inodes


def holder_of(port: int) -> str:
    """Return the process that listens on a port: `python3 (process 123)`. Empty if unreadable."""
    requested = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
    if not requested:
        return ""
    for process in _PROC.glob("[0-9]*"):
        if requested & _open_files(process):
            with contextlib.suppress(OSError):
                return f"{(process / 'comm').read_text().strip()} (process {process.name})"
    return ""


def _open_files(process: Path) -> set[str]:
    held = set()
    with contextlib.suppress(OSError):  # it has ended, or belongs to another user
        for link in (process / "fd").iterdir():
            with contextlib.suppress(OSError):
                held.add(str(link.readlink()))
    return held


def _free_port_after(item: ListeningPort) -> int:
    for port in range(item.port + 10, min(item.port + 2000, 65536)):
        if _bind_error(ListeningPort(item.variable, item.host, port)) is None:
            return port
    return 0


def check_ports(listening_ports: list[ListeningPort]) -> None:
    """Raise StartError, naming the variable to change, unless every port can be bound."""
    seen: dict[int, ListeningPort] = {}
    for item in listening_ports:
        if item.port in seen:
            raise StartError(
                f"{seen[item.port].variable} and {item.variable} are both {item.port}; give each "
                "its own port."
            )
        seen[item.port] = item
        error = _bind_error(item)
        if error is not None:
            raise StartError(_sentence(item, error))


def _sentence(item: ListeningPort, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        holder = holder_of(item.port) or "another process"
        free = _free_port_after(item)
        return (
            f"port {item.port} is taken by {holder}; stop it, or choose another port, for example "
            f"{item.variable}={free or '<a free port>'} (in the environment or in .env)."
        )
    if error.errno == errno.EACCES:
        return (
            f"port {item.port} can only be opened by root; set {item.variable} to 1024 or more, "
            "and put a proxy in front."
        )
    return (
        f"{item.host} port {item.port} cannot be opened ({error.strerror}); check SLIPWAY_BIND and "
        f"{item.variable}."
    )
