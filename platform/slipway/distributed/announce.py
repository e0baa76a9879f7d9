"""Telling the machine how training goes: steps, the strategy, checkpoints that are in place.

Under Slipway SLIPWAY_TASK_SOCKET names a datagram socket. Each message is one JSON object. Nothing
here blocks training or fails it: a message that finds no reader is lost.
"""

import contextlib
import json
import os
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

SOCKET_VARIABLE = "SLIPWAY_TASK_SOCKET"
# Steps of a small model take less than a millisecond, which is more often than anyone needs.
_STEP_EVERY_S = 0.2
# A message must fit into a datagram.
_MOST_KEPT = 1000


class Announcer:
    """Sends the messages of one rank. Does nothing without a listener."""

    def __init__(self, rank: int, environment: Mapping[str, str] | None = None) -> None:
        environment = os.environ if environment is None else environment
        self._rank = rank
        self._told_at_s = float("-inf")
        self._untold_step: int | None = None
        self._door: socket.socket | None = None
        if path := environment.get(SOCKET_VARIABLE):
            door = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            door.setblocking(False)
            try:
                door.connect(path)
                self._door = door
            except OSError:
                door.close()

    def step(self, number: int) -> None:
        """Report a finished optimisation step: a few times a second at most, and the last one."""
        if self._door is None:
            return
        now = time.monotonic()
        if now - self._told_at_s < _STEP_EVERY_S:
            self._untold_step = number
            return
        self._told_at_s = now
        self._untold_step = None
        self._tell({"step": number})

    def strategy(self, word: str, reason: str) -> None:
        """Report the strategy in use, and the reason."""
        self._tell({"strategy": word, "reason": reason})

    def checkpoint(self, step: int, size_bytes: int, kept: Sequence[int]) -> None:
        """Report that the checkpoint of a step is complete, and which ones are retained."""
        newest = sorted(kept)[-_MOST_KEPT:]
        self._tell({"checkpoint": {"step": step, "size_bytes": size_bytes, "kept": newest}})

    def close(self) -> None:
        """Report the last step, and stop reporting."""
        if self._door is not None:
            if self._untold_step is not None:
                self._tell({"step": self._untold_step})
                self._untold_step = None
            self._door.close()
            self._door = None

    def _tell(self, message: Mapping[str, Any]) -> None:
        if self._door is not None:
            with contextlib.suppress(OSError):
                self._door.send(json.dumps({**message, "rank": self._rank}).encode())
