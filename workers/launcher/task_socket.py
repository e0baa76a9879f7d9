"""The datagram socket through which ranks report to their shim (SLIPWAY_TASK_SOCKET).

Each datagram is one JSON object. `{"step": 12, "rank": 0}` reports that optimisation step 12 is
done (the first one is 1). `{"checkpoint": {"step": 12, "size_bytes": 9, "kept": [6, 12]}}` reports
that a checkpoint is complete and in its final place, and which ones remain beside it. `{"strategy":
"zero2", "reason": "…"}` reports how the ranks share the work. A launcher sends `{"failure": {...}}`
for the exception that ended its script.

Datagrams never block a training loop, and one that finds no reader is lost without harm.

Other tasks of the machine can find the socket in /proc/net/unix, so the sender is verified with the
kernel's credentials: only descendants of the shim may report for its task.
"""

import json
import os
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from workers.launcher.processes import stat_fields, uptime_s

VARIABLE: Final = "SLIPWAY_TASK_SOCKET"
_LIMIT_BYTES: Final = 16 * 1024
_TEXT_LIMIT: Final = 2000
_WORD_LIMIT: Final = 200
_KEPT_LIMIT: Final = 1000
_BATCH: Final = 256
_UCRED: Final = struct.Struct("3i")
_SPACE: Final = socket.CMSG_SPACE(_UCRED.size)
_DEEPEST: Final = 256
# The last messages of a process may be read after it has ended and its parent has reaped it.
_REMEMBERED_S: Final = 5.0


@dataclass(frozen=True)
class OptimizerStep:
    """A rank finished an optimisation step."""

    rank: int
    step: int


@dataclass(frozen=True)
class CheckpointSaved:
    """A checkpoint is whole and in its place. `kept` are the steps that can be resumed from now."""

    step: int
    size_bytes: int
    kept: tuple[int, ...]


@dataclass(frozen=True)
class Strategy:
    """Parallelism strategy of the ranks, as a word, and the reason for it."""

    word: str
    reason: str


@dataclass(frozen=True)
class Failure:
    """The exception that ended a rank's script. `at_ns` is CLOCK_BOOTTIME: one clock for all.

    `SystemExit` means that the script exited with a message, as `sys.exit("no rows")` does.
    """

    rank: int
    type: str
    message: str
    at_ns: int
    errno: int | None = None


Message = OptimizerStep | CheckpointSaved | Strategy | Failure


class TaskSocket:
    """The shim's end of the socket. Messages come from user code, so they are validated."""

    def __init__(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._socket.bind(str(path))
        path.chmod(0o600)
        self._members: dict[int, float] = {}

    def grant_access(self, uid: int, gid: int) -> None:
        """Give write access to the user of the ranks only (and root)."""
        os.chown(self.path, uid, gid, follow_symlinks=False)

    def fileno(self) -> int:
        """Descriptor to wait on."""
        return self._socket.fileno()

    def receive(self) -> list[Message]:
        """Return the waiting messages, at most one batch, without those of other tasks."""
        receive: list[Message] = []
        for _ in range(_BATCH):
            try:
                data, credentials, *_ = self._socket.recvmsg(_LIMIT_BYTES, _SPACE)
            except BlockingIOError:
                break
            message = _read(data) if self._is_member(_sender_of(credentials)) else None
            if message is not None:
                receive.append(message)
        return receive

    def _is_member(self, pid: int) -> bool:
        """Return whether the sender is a process of this task: a descendant of the shim."""
        now = uptime_s()
        is_member = _descends(pid, os.getpid())
        if is_member is None:
            return now - self._members.get(pid, float("-inf")) < _REMEMBERED_S
        if is_member:
            self._members[pid] = now
            if len(self._members) > _KEPT_LIMIT:
                self._members = {
                    member: at for member, at in self._members.items() if now - at < _REMEMBERED_S
                }
        return is_member

    def release(self) -> None:
        """Close this copy of the socket, which stays open in other processes."""
        self._socket.close()

    def close(self) -> None:
        """Close the socket and remove its file."""
        self._socket.close()
        with suppress(OSError):
            self.path.unlink(missing_ok=True)


def _sender_of(ancillary: list[tuple[int, int, bytes]]) -> int:
    """Return the sender's pid from the kernel, or 0 if it is in another PID namespace."""
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
            return int(_UCRED.unpack(data[: _UCRED.size])[0])
    return 0


def _descends(pid: int, ancestor: int) -> bool | None:
    """Return whether a process is a descendant of another one, or None if it is gone."""
    fields = stat_fields(pid) if pid else []
    if fields is None:
        return None
    for _ in range(_DEEPEST):
        if not fields:
            return False
        parent = int(fields[1])
        if parent == ancestor:
            return True
        fields = (stat_fields(parent) if parent else None) or []
    return False


def report_failure(path: str, failure: Failure) -> None:
    """Report to the shim why the script of this rank ended. Never raises."""
    body = {"rank": failure.rank, "type": failure.type, "at_ns": failure.at_ns}
    body["message"] = _shortened(failure.message)
    body["errno"] = failure.errno
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as door:
        door.setblocking(False)
        door.sendto(json.dumps({"failure": body}).encode(), path)


def _shortened(text: str) -> str:
    """As `slipway.schemas.truncation`, which ranks do not import."""
    if len(text) <= _TEXT_LIMIT:
        return text
    note = f" … (the beginning of {len(text):,} characters)"
    return text[: _TEXT_LIMIT - len(note)] + note


def notify_agent(path: Path, word: bytes = b"!") -> None:
    """Wake the agent, if it listens. The agent finds out itself what is new."""
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bell:
        bell.setblocking(False)
        bell.sendto(word, os.fspath(path))


def _read(data: bytes) -> Message | None:
    try:
        message = json.loads(data)
        if "failure" in message:
            return _failure(message["failure"])
        if "checkpoint" in message:
            return _saved(message["checkpoint"])
        if "strategy" in message:
            reason = _line(message.get("reason", ""), _TEXT_LIMIT)
            return Strategy(_line(message["strategy"], _WORD_LIMIT), reason)
        return OptimizerStep(rank=_count(message.get("rank", 0)), step=_count(message["step"]))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _saved(body: dict[str, Any]) -> CheckpointSaved:
    kept = body.get("kept", [])
    if not isinstance(kept, list):
        raise TypeError("not a list")
    return CheckpointSaved(
        step=_count(body["step"]),
        size_bytes=_count(body["size_bytes"]),
        kept=tuple(_count(step) for step in kept[-_KEPT_LIMIT:]),
    )


def _failure(body: dict[str, Any]) -> Failure:
    number = body.get("errno")
    return Failure(
        rank=_count(body["rank"]),
        type=str(body["type"])[:200],
        message=_shortened(str(body["message"])),
        at_ns=_count(body["at_ns"]),
        errno=number if isinstance(number, int) else None,
    )


def _line(value: object, limit: int) -> str:
    return " ".join(str(value).split())[:limit]


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 62:
        raise ValueError("not a count")
    return value
