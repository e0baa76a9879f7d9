"""The dashboard of a cluster of ranks, for the people who may open it.

The shim listens on a Unix socket that only the agent can reach. With the first connection it starts
a program inside of the sandbox that accepts the connections from then on, with the rights of a rank
(`clusters.dashboard`). So a dashboard that nobody opens costs nothing.
"""

import os
import selectors
import socket
from contextlib import suppress
from typing import Final

from workers.launcher.launch import Launch
from workers.launcher.network import listen_on_path
from workers.launcher.processes import uptime_s
from workers.launcher.program import Program
from workers.launcher.ranks import Helper, start_helper
from workers.launcher.sandbox import Sandbox

# The module is named, not imported: it is started in an interpreter of its own.
_PROGRAM: Final = "workers.launcher.clusters.dashboard"
_AGAIN_AFTER_S: Final = 5.0
_READ_BYTES: Final = 1 << 16


class TaskDashboard:
    """The socket of a task's dashboard. Everything happens in the loop of its shim."""

    def __init__(self, launch: Launch, selector: selectors.BaseSelector) -> None:
        self._launch = launch
        self._selector = selector
        self._env: dict[str, str] = {}
        self._sandbox: Sandbox | None = None
        self._helper: Helper | None = None
        self._started_at_s = 0.0
        self._is_watched = False
        self._listener: socket.socket | None = None

    def listen(self) -> None:
        """Open the socket, if the task has a dashboard. Connections wait until `begin`."""
        if self._launch.dashboard_path:
            self._listener = listen_on_path(self._launch.dashboard_path)
            self._listener.setblocking(False)

    def begin(self, env: dict[str, str], sandbox: Sandbox | None) -> None:
        """Serve connections with the variables of a rank, where it runs."""
        self._env, self._sandbox = env, sandbox
        self._watch()

    def release(self) -> None:
        """In a forked rank: forget the socket, whose number may be used again."""
        if self._listener is not None:
            self._listener.detach()
            self._listener = None

    def exited(self, pid: int) -> None:
        """Note the end of a child of the shim, if it was the program."""
        if self._helper is not None and self._helper.pid == pid:
            self._drain(self._helper)
            self._helper = None

    def step(self) -> None:
        """Wait for a connection again after the program has ended. Call it repeatedly."""
        if not self._env:
            return
        is_due = uptime_s() - self._started_at_s >= _AGAIN_AFTER_S
        if self._helper is None and not self._is_watched and is_due:
            self._watch()

    def close(self) -> None:
        """Accept no more connections. The program ends with the task."""
        if self._listener is None:
            return
        self._unwatch()
        with suppress(OSError):
            os.unlink(self._listener.getsockname())  # noqa: PTH108
        self._listener.close()
        self._listener = None

    def _watch(self) -> None:
        if self._listener is not None:
            self._selector.register(self._listener, selectors.EVENT_READ, self._on_connection)
            self._is_watched = True

    def _unwatch(self) -> None:
        if self._is_watched and self._listener is not None:
            self._selector.unregister(self._listener)
        self._is_watched = False

    def _on_connection(self, _mask: int) -> None:
        """Start the program, which accepts the connection that waits."""
        if self._listener is None:
            return
        self._unwatch()
        self._started_at_s = uptime_s()
        launch = self._launch
        program = Program("own", _PROGRAM, (), launch.python, launch.root)
        try:
            helper = start_helper(
                launch, program, self._env, sandbox=self._sandbox, listener=self._listener
            )
        except OSError:
            return  # tried again with a later step
        self._helper = helper
        self._selector.register(
            helper.output, selectors.EVENT_READ, lambda _mask: self._drain(helper)
        )

    def _drain(self, helper: Helper) -> None:
        """Discard what the program prints. It answers its clients instead."""
        try:
            data = os.read(helper.output, _READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            with suppress(KeyError, ValueError):
                self._selector.unregister(helper.output)
                os.close(helper.output)
