"""A real portal for tests that come in through the network: its own process, port and data."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.prepared import copy_tables
from tests.processes import database_of_its_own

ROOT = Path(__file__).resolve().parents[1]
START_S = 60.0
PEOPLE = ("alice", "bob", "charlie", "root")
# Runs inside `manage.py shell`: people with tokens of every scope they may have.
_MAKE_PEOPLE = """
import json, sys
from tests.personas import make_token, make_user
print("made " + json.dumps({
    name: make_token(make_user(name, is_administrator=name == "root")) for name in %r
}))
"""


@dataclass(frozen=True)
class LivePortal:
    """A running portal. `tokens` holds a token of each of PEOPLE; only root administers."""

    url: str
    data_dir: Path
    database_url: str
    tokens: dict[str, str]

    @property
    def environment(self) -> dict[str, str]:
        """What a process beside the portal, over the same data, is started with."""
        return _environment(self.data_dir, self.database_url, self.url)

    def email(self, name: str) -> str:
        """Return the e-mail address of a person."""
        return f"{name}@example.org"


def _environment(data_dir: Path, database_url: str, url: str) -> dict[str, str]:
    """Return the environment of a portal over `data_dir` that is reached at `url`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SLIPWAY_")}
    return kept | {
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "platform"), str(ROOT)]),
        "SLIPWAY_DATA_DIR": str(data_dir),
        "SLIPWAY_ENV_FILE": os.devnull,
        "SLIPWAY_PUBLIC_URL": url,
        # The same portal by another name, for those who know several servers.
        "SLIPWAY_ALLOWED_HOSTS": f"localhost:{urlsplit(url).port}",
        "DATABASE_URL": database_url,
    }


def _manage(environment: dict[str, str], *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _make_people(environment: dict[str, str]) -> dict[str, str]:
    output = _manage(environment, "shell", "--no-imports", "-c", _MAKE_PEOPLE % (PEOPLE,))
    line = next(line for line in output.splitlines() if line.startswith("made "))
    tokens: dict[str, str] = json.loads(line.removeprefix("made "))
    return tokens


def _wait_until_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(f"{url}/healthz", timeout=10).is_success:
                return
        except httpx.TransportError:
            time.sleep(0.02)
    raise AssertionError(f"the portal did not start:\n{log.read_text()}")


@pytest.fixture(scope="session")
def portal(live_portal: LivePortal) -> LivePortal:
    """The same for every folder whose conftest imports this fixture."""
    return live_portal


@pytest.fixture(scope="session")
def live_portal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LivePortal]:
    """A portal that lives as long as the test session; imported by the conftest of all tests.

    A fixture of a session that several folders import is made anew in each of them.
    """
    data_dir = tmp_path_factory.mktemp("portal")
    with (
        database_of_its_own() as database_url,
        socket.create_server(("127.0.0.1", 0)) as listener,
    ):
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        environment = _environment(data_dir, database_url, url)
        if not database_url:
            copy_tables(data_dir)
        tokens = _make_people(environment)
        log = data_dir / "portal.log"
        with log.open("wb") as output:
            # The socket is handed over open, so nobody else can take the port meanwhile.
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "uvicorn", "portal.config.asgi:application"),
                    *("--fd", str(listener.fileno()), "--lifespan", "off"),
                ],
                cwd=ROOT,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=[listener.fileno()],
            )
        try:
            _wait_until_ready(url, process, log)
            yield LivePortal(url, data_dir, database_url, tokens)
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
