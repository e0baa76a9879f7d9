"""Processes that a shim keeps beside its ranks, outside of their sandbox, for as long as it lives.

A shim that has left its PID namespace for its children can start no thread any more, and sockets
that a sandbox listens on may lead to services outside. Both are the work of a process of their own,
forked before the sandbox is made and given its sockets afterwards.
"""

import array
import os
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from workers.launcher.confinement import die_with_parent

_LAST_DESCRIPTOR: Final = 1 << 20
_MESSAGE_BYTES: Final = 16


class SidecarProcess:
    """A process that waits for `count` sockets and then runs `work` with them, forever."""

    def __init__(self, work: Callable[[list[socket.socket]], None], count: int) -> None:
        self._socket, theirs = socket.socketpair()
        creator = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            self._socket.close()
            _run(work, theirs, count, creator)
        theirs.close()

    def send_socket(self, listener: socket.socket) -> None:
        """Hand over the next socket, and close it here. Raises OSError."""
        with listener:
            rights = array.array("i", [listener.fileno()]).tobytes()
            self._socket.sendmsg([b"s"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])

    def close(self) -> None:
        """Close the connection to the process, which continues to run."""
        self._socket.close()


def _run(
    work: Callable[[list[socket.socket]], None], peer: socket.socket, count: int, creator: int
) -> None:
    """Never returns, and never outlives the shim."""
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        if not die_with_parent(creator, signal.SIGKILL):
            os._exit(1)
        keep = peer.fileno()
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
        os.closerange(3, keep)
        os.closerange(keep + 1, _LAST_DESCRIPTOR)
        work([_receive_socket(peer) for _ in range(count)])
    finally:
        # This process must not continue as a second shim, whatever happened.
        with suppress(BaseException):
            peer.close()
        os._exit(1)


def _receive_socket(peer: socket.socket) -> socket.socket:
    _, rights, _, _ = peer.recvmsg(_MESSAGE_BYTES, socket.CMSG_SPACE(4))
    return socket.socket(fileno=array.array("i", rights[0][2][:4])[0])
