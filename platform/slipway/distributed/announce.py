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
        self._sent_at_s = float("-inf")
        self._unsent_step: int | None = None
        self._socket: socket.socket | None = None
        if path := environment.get(SOCKET_VARIABLE):
            channel = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            channel.setblocking(False)
            try:
                channel.connect(path)
                self._socket = channel
            except OSError:
                channel.close()

    def step(self, number: int) -> None:
        """Report a finished optimisation step: a few times a second at most, and the last one."""
        if self._socket is None:
            return
        now = time.monotonic()
        if now - self._sent_at_s < _STEP_EVERY_S:
            self._unsent_step = number
            return
        self._sent_at_s = now
        self._unsent_step = None
        self._send({"step": number})

    def strategy(self, word: str, reason: str) -> None:
        """Report the strategy in use, and the reason."""
        self._send({"strategy": word, "reason": reason})

    def checkpoint(self, step: int, size_bytes: int, kept: Sequence[int]) -> None:
        """Report that the checkpoint of a step is complete, and which ones are retained."""
        newest = sorted(kept)[-_MOST_KEPT:]
        self._send({"checkpoint": {"step": step, "size_bytes": size_bytes, "kept": newest}})

    def close(self) -> None:
        """Report the last step, and stop reporting."""
        if self._socket is not None:
            if self._unsent_step is not None:
                self._send({"step": self._unsent_step})
                self._unsent_step = None
            self._socket.close()
            self._socket = None

    def _send(self, message: Mapping[str, Any]) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.send(json.dumps({**message, "rank": self._rank}).encode())
