"""The terminal of `slipway job shell`: keys go to the task, its output comes back."""

import contextlib
import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator

from slipway.cli.exits import UsageMistake
from slipway.errors import SlipwayError
from slipway.job_shell import JobShell

_READ_BYTES = 16 * 1024
_END_OF_INPUT = b"\x04"
_LARGEST = 1000
_REASONS = {
    "task_ended": "The task has ended, and the shell with it.",
    "unattended": "The shell was closed because nobody followed it.",
    "closed": "The shell was closed.",
    "forbidden": "You may not run work in this project any more.",
    "lost": "The shell was lost.",
    "not_started": "The shell could not be started.",
}


def attach(shell: JobShell) -> int:
    """Connect this terminal, or the standard streams, until the shell ends. Return its status."""
    ready = threading.Event()
    threading.Thread(target=_send_input, args=(shell, ready), daemon=True).start()
    columns, rows = _window()
    try:
        with _raw_terminal(), _following_window(shell, ready):
            for data in shell.output(rows=rows, columns=columns):
                ready.set()
                sys.stdout.buffer.write(data)
                sys.stdout.buffer.flush()
    finally:
        if shell.end is None:
            with contextlib.suppress(SlipwayError):
                shell.close()
    end = shell.end
    if end is not None and end.reason == "exit":
        return end.exit_code or 0
    reason = "lost" if end is None else end.reason
    detail = end.detail if end is not None else ""
    sys.stderr.write(f"slipway: {_REASONS.get(reason, 'The shell has ended.')} {detail}".rstrip())
    sys.stderr.write("\n")
    return 1


def check_platform() -> None:
    """Raise UsageMistake where terminals cannot be set as this needs it."""
    if os.name != "posix":
        raise UsageMistake(
            "Shells need a terminal of Linux or macOS.",
            next_step="Open the shell from there, or from WSL.",
        )


def _send_input(shell: JobShell, ready: threading.Event) -> None:
    """Type what is read from standard input. At its end the shell gets Ctrl-D."""
    ready.wait()
    descriptor = sys.stdin.fileno()
    while True:
        data = os.read(descriptor, _READ_BYTES)
        try:
            shell.type(data or _END_OF_INPUT)
        except SlipwayError:
            return  # the output says how the shell has ended
        if not data:
            return


def _window() -> tuple[int, int]:
    """Return columns and rows of the terminal itself. COLUMNS does not follow its window."""
    try:
        columns, rows = os.get_terminal_size(sys.stdin.fileno())
    except OSError:
        columns, rows = shutil.get_terminal_size()
    return min(max(columns, 1), _LARGEST), min(max(rows, 1), _LARGEST)


@contextlib.contextmanager
def _raw_terminal() -> Iterator[None]:
    """Pass every key on as it is, Ctrl-C among them, and restore the terminal afterwards."""
    if not sys.stdin.isatty():
        yield
        return
    import termios  # noqa: PLC0415
    import tty  # noqa: PLC0415

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        # Keys that were pressed meanwhile are not lost.
        tty.setraw(descriptor, termios.TCSADRAIN)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


@contextlib.contextmanager
def _following_window(shell: JobShell, ready: threading.Event) -> Iterator[None]:
    """Tell the shell when the size of the window changes."""
    changed = threading.Event()

    def follow() -> None:
        ready.wait()
        while True:
            changed.wait()
            changed.clear()
            columns, rows = _window()
            with contextlib.suppress(SlipwayError):
                shell.resize(rows, columns)

    threading.Thread(target=follow, daemon=True).start()
    before = signal.signal(signal.SIGWINCH, lambda *_: changed.set())
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)
