"""Starts a shell on a terminal of its own, with the rights and limits of a rank."""

import fcntl
import os
import signal
import socket
import stat
import struct
import termios
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from workers.launcher.launch import Launch
from workers.launcher.ranks import NOT_STARTED, enter_task
from workers.launcher.sandbox import Sandbox

_SHELLS: Final = ("/bin/bash", "/usr/bin/bash", "/bin/sh")
_READY: Final = b"+"
_MESSAGE_BYTES: Final = 4096
_LAST_DESCRIPTOR: Final = 1 << 20
_START_WITHIN_S: Final = 10.0
# Device number of the master ends of terminals.
_PTMX: Final = os.makedev(5, 2)


@dataclass(frozen=True)
class Terminal:
    """A shell, and the master end of its terminal."""

    pid: int
    master: int

    def resize(self, rows: int, columns: int) -> None:
        """Set the size of the window. Its programs get SIGWINCH."""
        with suppress(OSError):
            set_size(self.master, rows, columns)


def set_size(descriptor: int, rows: int, columns: int) -> None:
    """Set the size of a terminal. Raises OSError."""
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def start_terminal(
    launch: Launch, env: dict[str, str], *, sandbox: Sandbox | None, rows: int, columns: int
) -> Terminal:
    """Start a shell where the ranks run. Raises OSError with the reason.

    The terminal belongs to the sandbox, so its name exists there.
    """
    ours, theirs = socket.socketpair()
    shim = os.getpid()
    try:
        pid = os.fork()
    except OSError:
        ours.close()
        theirs.close()
        raise
    if pid == 0:
        # Objects of the shim must not close a number that is used again.
        report = theirs.detach()
        enter_task(launch, report, shim, forked=False, sandbox=sandbox, kept=report)
        _become_shell(report, env, rows, columns)
    theirs.close()
    with ours:
        ours.settimeout(_START_WITHIN_S)
        try:
            message, descriptors, _, _ = socket.recv_fds(ours, _MESSAGE_BYTES, 1)
        except TimeoutError:
            message, descriptors = b"it did not start in time", []
    if message == _READY and len(descriptors) == 1 and _is_master(descriptors[0]):
        os.set_blocking(descriptors[0], False)
        os.set_inheritable(descriptors[0], False)
        return Terminal(pid, descriptors[0])
    for descriptor in descriptors:
        os.close(descriptor)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    reason = message.decode("utf-8", errors="replace").strip() or "its process exited"
    raise OSError(0, reason)


def _is_master(descriptor: int) -> bool:
    """Check what the new process has sent: another one of its user may have interfered."""
    status = os.fstat(descriptor)
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == _PTMX


def _become_shell(report: int, env: dict[str, str], rows: int, columns: int) -> None:
    """In the new process: open the terminal and replace this program. Never returns."""
    try:
        master, slave = os.openpty()
        set_size(slave, rows, columns)
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        shell = next(path for path in _SHELLS if os.access(path, os.X_OK))
        with socket.socket(fileno=os.dup(report)) as connection:
            socket.send_fds(connection, [_READY], [master])
        for descriptor in (0, 1, 2):
            os.dup2(slave, descriptor)
        os.closerange(3, _LAST_DESCRIPTOR)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.execve(shell, [shell], env)  # noqa: S606 - this is the shell
    except BaseException as error:  # noqa: BLE001 - it must not continue as a second shim
        with suppress(OSError):
            os.write(report, f"the terminal could not be opened: {error}".encode())
    finally:
        os._exit(NOT_STARTED)
