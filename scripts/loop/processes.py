"""The Slipway that the demo uses: one that is already running, or one started by the demo."""

import contextlib
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Final

import httpx

from scripts.loop.steps import DemoError, wait_for

ROOT: Final = Path(__file__).resolve().parents[2]
_READY_WITHIN_S: Final = 600.0
# Lines of the platform's log that a new user should see: its address and the password.
_HIGHLIGHTS: Final = ("slipway:", "Slipway is ready")
_EMAIL = re.compile(r"first administrator: (\S+)")
_PASSWORD = re.compile(r"slipway: password: +(\S+)")


class Platform:
    """A Slipway: of this installation, or one elsewhere with the given `administrator`."""

    def __init__(self, url: str, *, administrator: tuple[str, str] | None = None) -> None:
        self.url = url
        self._administrator = administrator
        self._shows_all = False
        self._log_lines: list[str] = []
        self._process: subprocess.Popen[str] | None = None
        if administrator is not None or _responds(url):
            print(f"Slipway runs already: {url}", flush=True)
            return
        self._process = subprocess.Popen(
            [sys.executable, "manage.py", "up", "--no-input", "--stop-with-parent"],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._relay, daemon=True)
        self._reader.start()

    def _relay(self) -> None:
        assert self._process is not None  # noqa: S101  (the thread starts after the process)
        assert self._process.stdout is not None  # noqa: S101  (a pipe)
        for line in self._process.stdout:
            is_highlight = any(mark in line for mark in _HIGHLIGHTS)
            if is_highlight and not self._shows_all:
                self._log_lines.append(line)
            if is_highlight or self._shows_all:
                print(line, end="", flush=True)

    def wait_until_ready(self) -> None:
        """Wait until the platform is ready. Raises DemoError if it does not start."""
        wait_for(self._is_ready, "Slipway", within_s=_READY_WITHIN_S)

    def _is_ready(self) -> bool | None:
        if self._process is not None and self._process.poll() is not None:
            raise DemoError("Slipway did not start; see the reason above")
        return _responds(self.url) or None

    def administrator(self) -> tuple[str, str] | None:
        """Return email and password of the administrator: given, or created by this start."""
        if self._administrator is not None:
            return self._administrator
        log = "".join(self._log_lines)
        email, password = _EMAIL.search(log), _PASSWORD.search(log)
        return (email[1], password[1]) if email and password else None

    def stay(self) -> int:
        """Print the log of the started platform until it is stopped. Returns its exit status."""
        self._shows_all = True
        while True:
            with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C reaches the platform as well
                return self._wait()

    def stop(self) -> int:
        """Stop the started platform as Ctrl-C does. Returns its exit status."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        return self._wait()

    def _wait(self) -> int:
        if self._process is None:
            return 0
        status = self._process.wait()
        self._reader.join(timeout=5)
        return status


def _responds(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz", timeout=2).is_success
    except httpx.HTTPError:
        return False
