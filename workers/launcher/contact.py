"""The door through which a rank speaks to its shim: a datagram socket, SLIPWAY_TASK_SOCKET.

Each datagram is one JSON object. `{"step": 12, "rank": 0}` says that optimisation step 12 is done
(the first one is 1); `{"checkpoint": {"step": 12, "size_bytes": 9, "kept": [6, 12]}}` that a
checkpoint is whole and in its place, and which ones are left beside it; `{"strategy": "zero2",
"reason": "…"}` how the ranks share the work. A launcher sends `{"failure": {...}}` for the
exception that ended its script.
Datagrams never block a training loop, and one that finds no reader is lost without harm.
"""

import json
import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

VARIABLE: Final = "SLIPWAY_TASK_SOCKET"
_LIMIT_BYTES: Final = 16 * 1024
_TEXT_LIMIT: Final = 2000
_WORD_LIMIT: Final = 200
_KEPT_LIMIT: Final = 1000
_BATCH: Final = 256


@dataclass(frozen=True)
class Step:
    """A rank finished an optimisation step."""

    rank: int
    step: int


@dataclass(frozen=True)
class Saved:
    """A checkpoint is whole and in its place. `kept` are the steps that can be resumed from now."""

    step: int
    size_bytes: int
    kept: tuple[int, ...]


@dataclass(frozen=True)
class Strategy:
    """How the ranks share the work, as a word, and why."""

    word: str
    reason: str


@dataclass(frozen=True)
class Failure:
    """The exception that ended a rank's script. `at_ns` is CLOCK_BOOTTIME: one clock for all."""

    rank: int
    type: str
    message: str
    at_ns: int
    errno: int | None = None


Message = Step | Saved | Strategy | Failure


class ContactDoor:
    """The shim's end. What comes in was written by user code; only its form is believed."""

    def __init__(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.bind(str(path))
        path.chmod(0o600)

    def give_to(self, uid: int, gid: int) -> None:
        """Let the user that ranks run as write to it, and nobody else but root."""
        os.chown(self.path, uid, gid, follow_symlinks=False)

    def fileno(self) -> int:
        """Descriptor to wait on."""
        return self._socket.fileno()

    def receive(self) -> list[Message]:
        """Take what lies waiting, at most a bounded batch."""
        found: list[Message] = []
        for _ in range(_BATCH):
            try:
                data = self._socket.recv(_LIMIT_BYTES)
            except BlockingIOError:
                break
            message = _read(data)
            if message is not None:
                found.append(message)
        return found

    def let_go(self) -> None:
        """Close this copy of the door, which stays open elsewhere."""
        self._socket.close()

    def close(self) -> None:
        """Close the door and remove it."""
        self._socket.close()
        with suppress(OSError):
            self.path.unlink(missing_ok=True)


def tell_failure(path: str, failure: Failure) -> None:
    """Tell the shim why the script of this rank ended; never raises."""
    body = {"rank": failure.rank, "type": failure.type, "at_ns": failure.at_ns}
    body["message"] = failure.message[:_TEXT_LIMIT]
    body["errno"] = failure.errno
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as door:
        door.setblocking(False)
        door.sendto(json.dumps({"failure": body}).encode(), path)


def ring(path: Path, word: bytes = b"!") -> None:
    """Wake the agent, if one listens; it looks for itself what is new."""
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
        return Step(rank=_count(message.get("rank", 0)), step=_count(message["step"]))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _saved(body: dict[str, Any]) -> Saved:
    kept = body.get("kept", [])
    if not isinstance(kept, list):
        raise TypeError("not a list")
    return Saved(
        step=_count(body["step"]),
        size_bytes=_count(body["size_bytes"]),
        kept=tuple(_count(step) for step in kept[-_KEPT_LIMIT:]),
    )


def _failure(body: dict[str, Any]) -> Failure:
    number = body.get("errno")
    return Failure(
        rank=_count(body["rank"]),
        type=str(body["type"])[:200],
        message=str(body["message"])[:_TEXT_LIMIT],
        at_ns=_count(body["at_ns"]),
        errno=number if isinstance(number, int) else None,
    )


def _line(value: object, limit: int) -> str:
    return " ".join(str(value).split())[:limit]


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 62:
        raise ValueError("not a count")
    return value
