"""Detects whether the ranks of a job ever connect to each other, from the tables of the kernel.

Ranks that should train together and never connect train several models, each on its own, and
succeed. Nothing but the missing connections tells such a job from one whose ranks work together.
A closed connection stays in the table for a minute, so short ones are seen too.
"""

import socket
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from os import scandir
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from workers.launcher.launch import Gang, Launch
from workers.launcher.processes import descendants, uptime_s

# States in which no other side has answered: LISTEN, SYN_SENT, SYN_RECV, NEW_SYN_RECV.
_UNANSWERED: Final = frozenset({0x0A, 0x02, 0x03, 0x0C})
_TABLES: Final = (Path("/proc/self/net/tcp"), Path("/proc/self/net/tcp6"))
# Reading a longer table takes tens of milliseconds.
_LONGEST_TABLE_BYTES: Final = 4 << 20
_EARLY_S: Final = 10.0
_EARLY_EVERY_S: Final = 1.0
_EVERY_S: Final = 15.0
# Loading data and compiling a model may take most of a minute before ranks connect.
_PATIENCE_S: Final = 120.0
_SOCKET: Final = "socket:["
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
# IPv4 addresses in the table of IPv6 begin with this.
_MAPPED: Final = bytes(10) + b"\xff\xff"
_IPV4_BYTES: Final = 4
End = tuple[str, int]


@dataclass(frozen=True)
class Connection:
    """One end of a TCP connection of this machine. `inode` is 0 once it has been closed."""

    local: End
    remote: End
    inode: int


class RankConnections:
    """Notes once that ranks have connected to each other, or that they have not.

    Connections count on a port that Slipway assigned to a rank or to the rendezvous, between
    processes of two ranks here, and to the machine of another task.
    """

    def __init__(self, launch: Launch, note: Callable[..., None]) -> None:
        """`note` is given `ranks_connected`."""
        self._launch = launch
        self._note = note
        self._is_done = launch.world_size == 1
        self._noted: bool | None = None
        self._began_s = self._polled_at_s = uptime_s()
        self._ports: set[int] = set()
        self._remote: set[End] = set()
        self._machines: set[str] = set()
        # The platform may run on a machine of the gang, and ranks of all kinds connect to it.
        self._services = set(_ports_of_urls(launch.env.values()))

    def begin(self, gang: Gang) -> None:
        """Start to watch: the ranks have been started."""
        self._began_s = self._polled_at_s = uptime_s()
        if not gang.members:
            self._is_done = True
        index = self._launch.first_rank // self._launch.procs
        self._remote = {(member.address, port) for member in gang.members for port in member.ports}
        self._remote.add((gang.meeting.address, gang.meeting.port))
        for member in gang.members[index : index + 1]:
            self._ports.update(member.ports)
            self._machines = {other.address for other in gang.members} - {member.address}
        if self._launch.first_rank == 0:
            self._ports.add(gang.meeting.port)

    def step(self, ranks: Sequence[int], store: int) -> None:
        """Look again when it is time. `ranks` are the first processes of ranks, `store` ours."""
        now = uptime_s()
        is_early = now - self._began_s < _EARLY_S
        if self._is_done or now - self._polled_at_s < (_EARLY_EVERY_S if is_early else _EVERY_S):
            return
        self._polled_at_s = now
        self._look(ranks, store, is_last=now - self._began_s >= _PATIENCE_S)

    def finish(self, store: int) -> None:
        """Look for the last time, after all ranks have ended well."""
        if not self._is_done:
            self._look((), store, is_last=True)

    def _look(self, ranks: Sequence[int], store: int, *, is_last: bool) -> None:
        connections = read_connections()
        if connections is None:
            self._is_done = True  # what cannot be observed is not reported
        elif self._are_connected(connections, ranks, store):
            self._is_done = True
            self._note(ranks_connected=True)
        elif is_last and self._noted is None:
            self._noted = False
            self._note(ranks_connected=False)

    def _are_connected(
        self, connections: Sequence[Connection], ranks: Sequence[int], store: int
    ) -> bool:
        # The rendezvous store, where we serve it, is its own first client.
        held = _sockets_of([store])
        ours = {
            item.local
            for item in connections
            if item.inode in held and item.local[1] not in self._ports
        }
        for item in connections:
            is_known = item.local[1] in self._ports or item.remote in self._remote
            if is_known and not ours & {item.local, item.remote}:
                return True
        owners = {
            inode: rank for rank in ranks for inode in _sockets_of([rank, *descendants(rank)])
        }
        rank_at = {item.local: owners.get(item.inode) for item in connections}
        for item in connections:
            rank, other = owners.get(item.inode), rank_at.get(item.remote)
            if rank is None:
                continue
            is_elsewhere = item.remote[0] in self._machines and item.remote[1] not in self._services
            if is_elsewhere or other not in (None, rank):
                return True
        return False


def _ports_of_urls(values: Iterable[str]) -> Iterator[int]:
    for value in values:
        with suppress(ValueError):  # a value that is no URL
            url = urlsplit(value)
            if url.scheme in _DEFAULT_PORTS:
                yield url.port or _DEFAULT_PORTS[url.scheme]


def read_connections() -> list[Connection] | None:
    """Return the TCP connections of this network namespace, or None if they cannot be read."""
    connections: list[Connection] = []
    for table in _TABLES:
        try:
            with table.open("rb") as file:
                text = file.read(_LONGEST_TABLE_BYTES + 1)
        except FileNotFoundError:
            continue  # a machine without IPv6
        except OSError:
            return None
        if len(text) > _LONGEST_TABLE_BYTES:
            return None
        try:
            connections.extend(_parse(text.decode("ascii")))
        except (ValueError, IndexError, OSError, struct.error):
            return None
    return connections


def _parse(text: str) -> Iterator[Connection]:
    for line in text.splitlines()[1:]:
        fields = line.split()
        if int(fields[3], 16) not in _UNANSWERED:
            yield Connection(_end_of(fields[1]), _end_of(fields[2]), int(fields[9]))


def _end_of(text: str) -> End:
    """Parse `0100007F:1F90`: words in the machine's byte order. IPv4 is such in either table."""
    address, port = text.split(":")
    words = [int(address[start : start + 8], 16) for start in range(0, len(address), 8)]
    packed = struct.pack(f"={len(words)}I", *words).removeprefix(_MAPPED)
    family = socket.AF_INET if len(packed) == _IPV4_BYTES else socket.AF_INET6
    return socket.inet_ntop(family, packed), int(port, 16)


def _sockets_of(pids: Sequence[int]) -> set[int]:
    """Return the inodes of the sockets that processes hold open."""
    inodes: set[int] = set()
    for pid in pids:
        with suppress(OSError), scandir(f"/proc/{pid}/fd") as entries:
            for entry in entries:
                with suppress(OSError):
                    target = str(Path(entry.path).readlink())
                    if target.startswith(_SOCKET):
                        inodes.add(int(target[len(_SOCKET) : -1]))
    return inodes
