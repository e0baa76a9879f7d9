"""Graceful stop: SIGTERM sets a flag that the training loop handles between two steps."""

import contextlib
import logging
import signal
import threading
from collections.abc import Callable
from types import FrameType

logger = logging.getLogger(__name__)

_Handler = Callable[[int, FrameType | None], object]


class StopRequest:
    """Records SIGTERM, which Slipway, Slurm, Kubernetes and torchrun send before they kill.

    A handler that the script had set is called as well. Outside the main thread signals cannot be
    caught. A stop can then only be requested by `request()`.
    """

    def __init__(self) -> None:
        self._requested = threading.Event()
        self._before: _Handler | int | None = None
        self._installed = False
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTERM, self._on_signal)
            self._installed = True

    @property
    def requested(self) -> bool:
        """True if this process was asked to stop."""
        return self._requested.is_set()

    def request(self) -> None:
        """Ask this process to stop after the current step."""
        self._requested.set()

    def close(self) -> None:
        """Restore the previous signal handler."""
        if self._installed:
            self._installed = False
            with contextlib.suppress(ValueError):  # closed by another thread at exit
                signal.signal(signal.SIGTERM, self._before)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.request()
        if callable(self._before):
            self._before(number, frame)
