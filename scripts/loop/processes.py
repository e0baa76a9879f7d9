"""The Slipway that the demo drives: the one that runs here already, or one of its own."""

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
_WORTH_SHOWING: Final = ("slipway:", "Slipway is ready")
_EMAIL = re.compile(r"first administrator: (\S+)")
_PASSWORD = re.compile(r"slipway: password: +(\S+)")


class Platform:
    """All of Slipway: of this installation, or one elsewhere, whose `administrator` is told."""

    def __init__(self, url: str, *, administrator: tuple[str, str] | None = None) -> None:
        self.url = url
        self._administrator = administrator
        self._shows_all = False
        self._heard: list[str] = []
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
            worth = any(mark in line for mark in _WORTH_SHOWING)
            if worth and not self._shows_all:
                self._heard.append(line)
            if worth or self._shows_all:
                print(line, end="", flush=True)

    def wait_until_ready(self) -> None:
        """Return when it answers; raises DemoError when it does not start."""
        wait_for(self._is_ready, "Slipway", within_s=_READY_WITHIN_S)

    def _is_ready(self) -> bool | None:
        if self._process is not None and self._process.poll() is not None:
            raise DemoError("Slipway did not start; see the reason above")
        return _responds(self.url) or None

    def administrator(self) -> tuple[str, str] | None:
        """Return the address and the password of the administrator: told, or made by this start."""
        if self._administrator is not None:
            return self._administrator
        said = "".join(self._heard)
        email, password = _EMAIL.search(said), _PASSWORD.search(said)
        return (email[1], password[1]) if email and password else None

    def stay(self) -> int:
        """Show the log of one of our own until somebody stops it; returns its exit status."""
        self._shows_all = True
        while True:
            with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C reaches the platform as well
                return self._end()

    def stop(self) -> int:
        """Stop one of our own as Ctrl-C does; returns its exit status."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        return self._end()

    def _end(self) -> int:
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
