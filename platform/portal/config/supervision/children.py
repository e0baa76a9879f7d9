"""Start a child that cannot outlive its parent, and describe how it ended."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def die_with_parent(parent: int, by: signal.Signals) -> None:
    """Ask the kernel to signal this process when its parent dies. Exit if it is dead already.

    `parent` is the process id the caller knows its parent by. Where the kernel cannot (not Linux)
    only the check is made.
    """
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, int(by), 0, 0, 0)
    if os.getppid() != parent:  # it died between the fork and the call above
        os._exit(1)


def spawn(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path,
    output: int,
    announce: Callable[[int], None],
    stdin: str = "",
) -> subprocess.Popen[bytes]:
    """Start a child in a session and process group of its own.

    The kernel kills it when this process dies. `announce` is called in the child, with its process
    id, before the program starts. Standard output and error both go to `output`. `stdin` is the
    child's standard input, at most a pipe's worth (4 KiB). Raises OSError when the program cannot
    be started.
    """
    parent = os.getpid()

    def before_exec() -> None:
        die_with_parent(parent, signal.SIGKILL)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # the reader of the pipe may have died
        announce(os.getpid())
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)

    child = subprocess.Popen(
        list(argv),
        env=dict(env),
        cwd=cwd,
        stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
        preexec_fn=before_exec,  # noqa: PLW1509  (unsafe with threads; the supervisor has none)
    )
    if child.stdin is not None:
        with contextlib.suppress(BrokenPipeError), child.stdin as pipe:
            pipe.write(stdin.encode())
    return child


def has_ended(child: subprocess.Popen[bytes]) -> bool:
    """Return True if the child has ended, without reaping it (its PID is not reused)."""
    try:
        return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def signal_group(child: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Send a signal to the process group of the child. An empty group is no error."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)


def reason_of(returncode: int) -> str:
    """Describe how a process ended: `exited with code 3`, `killed by SIGKILL (signal 9)`."""
    if returncode >= 0:
        return f"exited with code {returncode}"
    try:
        name = signal.Signals(-returncode).name
    except ValueError:
        return f"killed by signal {-returncode}"
    words = f"killed by {name} (signal {-returncode})"
    if name == "SIGKILL":
        words += ", manually or by the kernel's out-of-memory killer"
    return words
