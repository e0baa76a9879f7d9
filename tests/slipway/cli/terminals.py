"""A terminal of its own for a command: what is typed, what is seen, whether input is hidden."""

import os
import pty
import re
import select
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.live import ROOT

PATIENCE_S = 20.0
COMMAND = [sys.executable, "-m", "slipway"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine that is signed in nowhere."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SLIPWAY_")}
    for name in ("NO_COLOR", "FORCE_COLOR", "DISPLAY", "WAYLAND_DISPLAY", "COLUMNS"):
        kept.pop(name, None)
    return kept | {
        "PYTHONPATH": str(ROOT / "platform"),
        "SLIPWAY_CONFIG_DIR": str(tmp_path / "config"),
        "TERM": "xterm-256color",
    }


@dataclass
class Terminal:
    """A command that runs on a terminal of its own."""

    process: subprocess.Popen[bytes]
    screen: int
    seen: str = ""

    def expect(self, text: str) -> None:
        """Wait until `text` has appeared on the screen."""
        deadline = time.monotonic() + PATIENCE_S
        while text not in self.seen:
            assert time.monotonic() < deadline, self.seen
            if not self._read(deadline - time.monotonic()):
                break
        assert text in self.seen, self.seen

    def type(self, text: str) -> None:
        """Type on the keyboard."""
        os.write(self.screen, text.encode())

    def wait_for_hidden_input(self) -> None:
        """Wait until the terminal shows no more of what is typed."""
        deadline = time.monotonic() + PATIENCE_S
        while termios.tcgetattr(self.screen)[3] & termios.ECHO:
            assert time.monotonic() < deadline, "what is typed would be seen"
            time.sleep(0.01)

    def finish(self) -> int:
        """Read the rest of the screen; return the exit code."""
        deadline = time.monotonic() + PATIENCE_S
        while self._read(deadline - time.monotonic()):
            assert time.monotonic() < deadline, self.seen
        return self.process.wait(timeout=PATIENCE_S)

    def _read(self, seconds: float) -> bool:
        ready, _, _ = select.select([self.screen], [], [], max(seconds, 0))
        try:
            chunk = os.read(self.screen, 65_536) if ready else b""
        except OSError:  # the other end is closed
            chunk = b""
        self.seen += chunk.decode(errors="surrogateescape")
        return bool(chunk)


@dataclass
class Terminals:
    """Starts commands on terminals."""

    environment: dict[str, str]
    started: list[Terminal]

    def run(self, *arguments: str, **changes: str) -> Terminal:
        """Start one command."""
        screen, keyboard = pty.openpty()
        process = subprocess.Popen(
            [*COMMAND, *arguments],
            env=self.environment | {"COLUMNS": "120"} | changes,
            stdin=keyboard,
            stdout=keyboard,
            stderr=keyboard,
            start_new_session=True,
        )
        os.close(keyboard)
        terminal = Terminal(process, screen)
        self.started.append(terminal)
        return terminal


@pytest.fixture
def terminals(environment: dict[str, str]) -> Iterator[Terminals]:
    made = Terminals(environment, [])
    yield made
    for terminal in made.started:
        if terminal.process.poll() is None:
            terminal.process.kill()
            terminal.process.wait()
        os.close(terminal.screen)


def without_styles(screen: str) -> str:
    """Take away the colours the command itself makes."""
    return re.sub(r"\x1b\[[0-9;]*m", "", screen)
