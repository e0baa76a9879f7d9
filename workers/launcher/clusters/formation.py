"""Forms the cluster of a job: rank 0 introduces the others to the head and waits for all of them.

Each other rank holds a connection to rank 0 for as long as that one lives. Its end tells them that
the script has ended, however it ended: rank 0's own task reports that.
"""

import hashlib
import hmac
import json
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from importlib.util import find_spec
from typing import Final, NoReturn

from workers.launcher.clusters.member import (
    RANK_ONLY,
    Member,
    log_line,
    member_of,
    without_rank,
)
from workers.launcher.clusters.software import Entry, Software, software_of
from workers.launcher.program import Program

_POLL_S: Final = 0.1
_RETRY_S: Final = 0.2
_LONGEST_LINE: Final = 64 << 10
_GREETING_S: Final = 5.0
# The nodes of a cluster end before or after rank 0 when a task is stopped.
_END_PATIENCE_S: Final = 5.0
_TAIL_CHARACTERS: Final = 3000
_MOST_NAMED: Final = 10


def join_cluster(program: Program) -> None:
    """Form the cluster of the program's framework. Returns on rank 0 alone, with the script next.

    The environment of this process then leads to the cluster, and has no variables of a rank.
    Raises SystemExit: on the other ranks at the end, and on any rank if the cluster is incomplete.
    """
    software = software_of(program.framework)
    if find_spec(software.package) is None:
        noun, again = ("job", "submit") if program.kind != "own" else ("server", "start")
        sys.exit(
            f"This {noun} has the framework {program.framework}, and its environment has no "
            f"package {software.package}. Add {software.package} to its packages and {again} it "
            "again."
        )
    env = dict(os.environ)
    member = member_of(program, env, without_rank(env))
    variables = software.prepare(member)
    member.env.update(variables)
    if member.rank > 0:
        _serve(member, software)
    variables |= _Leader(member, software).form()
    for name in RANK_ONLY:
        os.environ.pop(name, None)
    os.environ.update(variables)


class _Leader:
    """Rank 0 while the cluster forms. It runs no thread, because the script may fork."""

    def __init__(self, member: Member, software: Software) -> None:
        self._member, self._software = member, software
        self._began_s = time.monotonic()
        self._selector = selectors.DefaultSelector()
        self._pending: dict[socket.socket, bytes] = {}
        self._connections: dict[int, socket.socket] = {}
        self._introduced: set[int] = set()
        self._entry: Entry | None = None
        self._joined = 0

    def form(self) -> dict[str, str]:
        """Return the variables of the script, once all nodes have joined. Raises SystemExit."""
        member, software = self._member, self._software
        listener = self._listen()
        head = _started(software.head_command(member), member, f"{software.package}-head.log")
        own: _Process | None = None
        count: _Process | None = None
        try:
            while not self._is_complete():
                self._step(listener)
                if head is not None:
                    self._check(head, "head")
                if self._entry is None:
                    self._entry = software.entry(member)
                    if self._entry is None:
                        continue
                    address = self._entry.address
                    count = _Process(software.count_command(address), member, "joined.log")
                    command = software.node_command(member, address)
                    own = _started(command, member, "node.log")
                if own is not None:
                    self._check(own, software.node)
                assert count is not None  # noqa: S101 - started with the entry
                self._joined = count.last_number()
                self._check(count, "first connection")
        finally:
            if count is not None:
                count.kill()
            listener.close()
        assert self._entry is not None  # noqa: S101 - some have joined
        self._keep_connections()
        dashboard = software.dashboard(member, self._entry)
        if dashboard is not None:
            dashboard.write(member.folder)
        seconds = time.monotonic() - self._began_s
        log_line(
            f"The {software.label} cluster at {self._entry.address} has "
            f"{_counted(self._joined, software.node)}, after {seconds:.0f} s."
        )
        return self._entry.environment(member) | software.script_variables(self._entry)

    def _is_complete(self) -> bool:
        """Return whether all nodes have joined. Ranks without one learn from us when to end."""
        others = self._member.world_size - 1
        has_all = len(self._introduced) == others
        return has_all and self._joined >= self._software.nodes(self._member)

    def _listen(self) -> socket.socket:
        host, port = self._member.meeting
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        # The shim holds the port for this rank.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(self._member.world_size)
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)
        return listener

    def _step(self, listener: socket.socket) -> None:
        """Admit ranks, and give them the entry once there is one."""
        for key, _ in self._selector.select(_POLL_S):
            if key.fileobj is listener:
                with suppress(OSError):
                    peer, _ = listener.accept()
                    peer.setblocking(False)
                    self._pending[peer] = b""
                    self._selector.register(peer, selectors.EVENT_READ)
            else:
                self._read(key.fileobj)  # type: ignore[arg-type]
        if self._entry is None:
            return
        line = json.dumps(asdict(self._entry)).encode() + b"\n"
        for rank in self._connections.keys() - self._introduced:
            self._introduced.add(rank)
            with suppress(OSError):
                self._connections[rank].sendall(line)

    def _read(self, peer: socket.socket) -> None:
        """Read the greeting of a rank. Others, who have no token, are sent away."""
        try:
            data = peer.recv(_LONGEST_LINE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        text = self._pending[peer] + data
        if data and b"\n" not in text and len(text) < _LONGEST_LINE:
            self._pending[peer] = text
            return
        self._selector.unregister(peer)
        del self._pending[peer]
        rank = _rank_of(text, self._member)
        if rank is None:
            peer.close()
        else:
            peer.setblocking(True)
            self._connections[rank] = peer

    def _check(self, process: "_Process", name: str) -> None:
        """Raise SystemExit if a process has ended, or the time has passed."""
        member, label = self._member, self._software.label
        status = process.poll()
        if status is not None:
            sys.exit(
                f"The {name} of the {label} cluster ended with status {status} before all had "
                f"joined. Its last output:\n{process.tail()}"
            )
        if time.monotonic() - self._began_s < member.wait_s:
            return
        total = self._software.nodes(member)
        unit = "tasks" if total == member.tasks else "ranks"
        message = (
            f"{self._joined} of {total} {unit} joined the {label} cluster in {member.wait_s:g} s"
        )
        sys.exit(f"{message}: {self._reason(process)}")

    def _reason(self, process: "_Process") -> str:
        member = self._member
        if self._entry is None:
            return f"its head does not answer yet. Its last output:\n{process.tail()}"
        missing = [rank for rank in range(1, member.world_size) if rank not in self._connections]
        if missing:
            named = ", ".join(map(str, missing[:_MOST_NAMED]))
            return f"rank {named} did not connect to {member.meeting_text}. Read its log."
        return (
            "all ranks have started, and some cannot reach the head at "
            f"{self._entry.address}. Look into their logs, and check that nodes can reach each "
            "other at any port."
        )

    def _keep_connections(self) -> None:
        """Leave the connections open until this process ends, whatever becomes of our objects."""
        self._selector.close()
        for connection in self._connections.values():
            connection.detach()
        for peer in self._pending:
            peer.close()


def _serve(member: Member, software: Software) -> NoReturn:
    """Run the node of this rank, if it has one, until rank 0 has ended. Raises SystemExit."""
    deadline = time.monotonic() + member.wait_s
    leader = _connect(member, deadline, software)
    entry = _receive(leader, deadline, member, software)
    if entry is None:
        sys.exit(0)
    # A stop is the script's matter: it may save first, and needs its cluster for that.
    signal.signal(signal.SIGTERM, lambda *_: None)
    member.env.update(entry.environment(member))
    command = software.node_command(member, entry.address)
    process = _started(command, member, f"node-{member.rank}.log")
    if process is not None:
        log_line(
            f"Rank {member.rank} is a {software.node} of the {software.label} cluster "
            "until rank 0 has ended."
        )
    while not _has_ended(leader, _POLL_S):
        status = None if process is None else process.poll()
        if process is not None and status is not None:
            if _has_ended(leader, _END_PATIENCE_S):
                break
            sys.exit(
                f"The {software.label} {software.node} of rank {member.rank} ended with status "
                f"{status}, before the script. Its last output:\n{process.tail()}"
            )
    sys.exit(0)


def _connect(member: Member, deadline: float, software: Software) -> socket.socket:
    while True:
        try:
            leader = socket.create_connection(member.meeting, timeout=_GREETING_S)
        except OSError as error:
            if time.monotonic() > deadline:
                sys.exit(
                    f"Rank 0 did not start the {software.label} cluster within "
                    f"{member.wait_s:g} s ({member.meeting_text}: {error}). Read the log of rank 0."
                )
            time.sleep(_RETRY_S)
            continue
        leader.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        greeting = {"rank": member.rank, "proof": _proof(member)}
        leader.sendall(json.dumps(greeting).encode() + b"\n")
        return leader


def _receive(
    leader: socket.socket, deadline: float, member: Member, software: Software
) -> Entry | None:
    """Return the entry, or None if rank 0 has ended before there was one."""
    text = b""
    while not text.endswith(b"\n"):
        leader.settimeout(max(_POLL_S, deadline - time.monotonic()))
        try:
            data = leader.recv(_LONGEST_LINE)
        except TimeoutError:
            sys.exit(
                f"Rank 0 did not start the {software.label} cluster within {member.wait_s:g} s. "
                "Read the log of rank 0."
            )
        except OSError:
            data = b""
        if not data:
            return None
        text += data
    return Entry(**json.loads(text))


def _has_ended(leader: socket.socket, wait_s: float) -> bool:
    """Wait for the end of rank 0's connection, and return whether it has come."""
    leader.settimeout(wait_s)
    try:
        return not leader.recv(1)
    except TimeoutError:
        return False
    except OSError:
        return True


def _proof(member: Member) -> str:
    """Return what only the ranks of this attempt know."""
    return hashlib.sha256(f"cluster\0{member.token}".encode()).hexdigest()


def _rank_of(text: bytes, member: Member) -> int | None:
    """Return the rank that a greeting comes from, None if it is not one of this job's."""
    try:
        greeting = json.loads(text)
        proof, rank = str(greeting["proof"]), int(greeting["rank"])
    except (ValueError, KeyError, TypeError):
        return None
    is_one = hmac.compare_digest(proof, _proof(member)) and 0 < rank < member.world_size
    return rank if is_one else None


class _Process:
    """A program of the cluster, whose output is in a file, so that the log is the script's."""

    def __init__(self, command: Sequence[str], member: Member, log: str) -> None:
        self._log = member.folder / log
        with self._log.open("wb") as output:
            self._pid = os.posix_spawn(
                command[0],
                list(command),
                member.env,
                file_actions=[(os.POSIX_SPAWN_DUP2, output.fileno(), number) for number in (1, 2)],
                # Outside of the group of the rank, which is sent the signal to stop.
                setsid=True,
                setsigdef=[signal.SIGPIPE],
            )
        self._status: int | None = None

    def poll(self) -> int | None:
        """Return the exit status, None while it runs."""
        if self._status is None:
            with suppress(ChildProcessError):
                pid, status = os.waitpid(self._pid, os.WNOHANG)
                if pid:
                    self._status = os.waitstatus_to_exitcode(status)
        return self._status

    def kill(self) -> None:
        """End it at once, and reap it."""
        if self.poll() is None:
            with suppress(ProcessLookupError, ChildProcessError):
                os.kill(self._pid, signal.SIGKILL)
                os.waitpid(self._pid, 0)

    def tail(self) -> str:
        """Return its last output."""
        return self._text()[-_TAIL_CHARACTERS:].strip() or "(none)"

    def last_number(self) -> int:
        """Return the last line of its output if it is a number, else 0."""
        lines = reversed(self._text().splitlines())
        return next((int(line) for line in lines if line.isdecimal()), 0)

    def _text(self) -> str:
        return self._log.read_text(errors="replace")


def _started(command: Sequence[str], member: Member, log: str) -> _Process | None:
    """Start a program of the cluster. Returns None if there is none."""
    return _Process(command, member, log) if command else None


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
