"""The command line as a person or a script runs it."""

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

from slipway.cli.main import main
from tests.live import LivePortal


@dataclass(frozen=True)
class Ran:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Standard output as the one JSON document it must be."""
        return json.loads(self.out)

    @property
    def problem(self) -> Any:
        """Standard error as the one problem document it must be."""
        return json.loads(self.err)

    @property
    def rows(self) -> list[list[str]]:
        """Standard output as tab-separated lines."""
        return [line.split("\t") for line in self.out.splitlines()]


class Cli(Protocol):
    """Runs one command, with `stdin` piped in."""

    def __call__(self, *arguments: str, stdin: str = "") -> Ran: ...


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine that is signed in nowhere; returns the folder of its login file."""
    for name in ("SLIPWAY_URL", "SLIPWAY_TOKEN", "SLIPWAY_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SLIPWAY_CONFIG_DIR", str(tmp_path / "config"))
    return tmp_path / "config"


@pytest.fixture
def cli(machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Run commands in this process, on a machine that is signed in nowhere."""

    def run(*arguments: str, stdin: str = "") -> Ran:
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        capsys.readouterr()
        code = main(arguments)
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run


@pytest.fixture
def signed_in(cli: Cli, portal: LivePortal) -> Callable[[str], Cli]:
    """Sign the machine in to the live portal as a person; returns the command line."""

    def sign_in(name: str) -> Cli:
        ran = cli("login", portal.url, "--token", "-", stdin=portal.tokens[name] + "\n")
        assert ran.code == 0, ran.err
        return cli

    return sign_in


@pytest.fixture
def alice(signed_in: Callable[[str], Cli]) -> Cli:
    """The command line of Alice, signed in to the live portal."""
    return signed_in("alice")
