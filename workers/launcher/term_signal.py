"""SIGTERM to a shim: a request to stop, or the end of the allocation that its task runs in.

An engine such as Slurm sends its SIGTERM to every process of an allocation, so ranks that do not
handle it are gone before anybody could ask them to end.
"""

import signal
import time
from collections.abc import Sequence
from types import FrameType
from typing import Final

from workers.launcher import exit_reasons
from workers.launcher.launch import Launch, StopRequest
from workers.launcher.ranks import Rank

_GRACE_S: Final = 10.0
# Time between the moments when processes of an allocation get the signal of its engine.
_APART_S: Final = 0.5
_POLL_S: Final = 0.01


class TermSignal:
    """SIGTERM to this process, and its meaning."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._at_ns: int | None = None
        # True until the request that it stands for has been taken.
        self.is_new = False

    def receive(self, _number: int, _frame: FrameType | None) -> None:
        """Note the signal: the handler of it."""
        self.is_new = True
        if self._at_ns is None:
            self._at_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)

    def request(self) -> StopRequest | None:
        """Return the request to stop that a new signal stands for, where the agent made none."""
        if not self.is_new:
            return None
        if grace_s := self._launch.engine_grace_s:
            return StopRequest(exit_reasons.PREEMPTED, grace_s, exit_reasons.ENGINE_ENDED)
        return StopRequest(exit_reasons.SIGNAL, _GRACE_S)

    def has_ended(self, ranks: Sequence[Rank]) -> bool:
        """Return whether all ranks, which are gone, ended of the end of their allocation.

        The signal may come up to half a second after a rank ended of it: ranks of other nodes may
        get it first.
        """
        if not self._launch.engine_grace_s:
            return False
        failed = [rank.ending() for rank in ranks if rank.ending().failed]
        if failed and (self._launch.is_gang or any(end.signal == signal.SIGTERM for end in failed)):
            deadline = time.monotonic() + _APART_S
            while self._at_ns is None and time.monotonic() < deadline:
                time.sleep(_POLL_S)
        if self._at_ns is None:
            return False
        first_ns = min((end.failed_at_ns for end in failed), default=self._at_ns)
        return first_ns >= self._at_ns - int(_APART_S * 1e9)
