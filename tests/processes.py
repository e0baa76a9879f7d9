"""Real processes for tests: free ports, patience with a deadline, an installation of its own."""

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit, urlunsplit

import psycopg

from portal.config.supervision.children import die_with_parent
from tests.ports import free_ports as free_ports  # noqa: PLC0414  (others import it from here)
from tests.prepared import copy_tables, create_database

ROOT = Path(__file__).resolve().parents[1]
Found = TypeVar("Found")


def wait_for(
    look: Callable[[], Found], what: str, *, within_s: float = 15.0, every_s: float = 0.02
) -> Found:
    """Return what `look` finds as soon as it is truthy; fail after `within_s` seconds.

    The longer it takes, the less often it looks: looking takes time from what it waits for.
    """
    start = time.monotonic()
    while True:
        result = look()
        if result:
            return result
        gone = time.monotonic() - start
        if gone > within_s:
            raise AssertionError(f"no {what} within {within_s:g} s")
        time.sleep(max(every_s, min(gone / 20, 0.1)))


def is_alive(pid: int) -> bool:
    """Tell whether a process runs (one that only waits to be collected does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def children_of(pid: int) -> list[int]:
    """Return the direct children of a process, whichever of its threads started them."""
    lists: list[str] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            lists.append(path.read_text())
    return [int(child) for line in lists for child in line.split()]


def command_of(pid: int) -> str:
    """Return the command line of a process; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return ""


class Program:
    """A running program whose output is kept in a file."""

    def __init__(
        self, argv: list[str], *, env: dict[str, str], output: Path, stdout: int | None = None
    ) -> None:
        self.output = output
        tests = os.getpid()
        with output.open("ab") as file:
            self.process = subprocess.Popen(
                argv,
                cwd=ROOT,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=file if stdout is None else stdout,
                stderr=file,
                start_new_session=True,
                # Tests that are killed leave nothing running either.
                preexec_fn=lambda: die_with_parent(tests, signal.SIGKILL),  # noqa: PLW1509
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def text(self) -> str:
        """What it has printed so far."""
        return self.output.read_text(errors="replace")

    def wait_for_text(self, text: str, *, within_s: float = 15.0, after: int = 0) -> str:
        """Wait until it printed `text` beyond the first `after` characters; returns the output."""

        def look() -> str:
            if self.process.poll() is not None and text not in self.text()[after:]:
                raise AssertionError(f"it ended before it said {text!r}:\n{self.text()}")
            return self.text() if text in self.text()[after:] else ""

        try:
            return wait_for(look, f"{text!r} in the output", within_s=within_s)
        except AssertionError as error:
            raise AssertionError(f"{error}; it said:\n{self.text()}") from None

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def wait(self, within_s: float = 15.0) -> int:
        """Wait for its end; returns the exit status (negative: the signal)."""
        return self.process.wait(within_s)

    def end(self) -> None:
        """Kill it and its process group, whatever state they are in."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait(10)


def clean_environment() -> dict[str, str]:
    """Return this process's environment without what would steer a Slipway started from here."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SLIPWAY_", "DJANGO_"))
        and name not in {"DATABASE_URL", "REDIS_URL"}
    }
    # A Slipway in use may have its settings in `.env`.
    return kept | {"SLIPWAY_ENV_FILE": os.devnull}


@contextlib.contextmanager
def database_of_its_own(*, empty: bool = False, source: str = "") -> Iterator[str]:
    """Yield a DATABASE_URL: a PostgreSQL database when the suite runs on one, else none.

    It is a copy of the database `source`, or has all its tables, unless it shall be `empty`.
    """
    server = os.environ.get("DATABASE_URL", "")
    if not server.startswith("postgres"):
        yield ""
        return
    name = f"slipway_live_{secrets.token_hex(4)}"
    with psycopg.connect(server, autocommit=True) as connection:
        if empty:
            connection.execute(f"CREATE DATABASE {name}")
        else:
            create_database(connection, server, name, source)
        try:
            yield urlunsplit(urlsplit(server)._replace(path=f"/{name}"))
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


class Installation:
    """A Slipway of its own: data folder, ports, database. `environ` steers what starts in it."""

    def __init__(self, folder: Path, database_url: str) -> None:
        self.folder = folder
        self.data_dir = folder / "data"
        self.portal_port, self.control_health_port, self.redis_port = free_ports(3)
        self.gateway_port, self.relay_port = free_ports(2)
        self.notebooks_port, self.hub_port, self.proxy_port = free_ports(3)
        self.environ = clean_environment() | {
            "SLIPWAY_DATA_DIR": str(self.data_dir),
            "SLIPWAY_PORTAL_PORT": str(self.portal_port),
            "SLIPWAY_CONTROL_HEALTH_PORT": str(self.control_health_port),
            "SLIPWAY_REDIS_PORT": str(self.redis_port),
            "SLIPWAY_GATEWAY_PORT": str(self.gateway_port),
            "SLIPWAY_RELAY_PORT": str(self.relay_port),
            "SLIPWAY_NOTEBOOKS_PORT": str(self.notebooks_port),
            "SLIPWAY_NOTEBOOKS_HUB_PORT": str(self.hub_port),
            "SLIPWAY_NOTEBOOKS_PROXY_PORT": str(self.proxy_port),
            "DATABASE_URL": database_url,
            # Tests that run jobs set it; the others need no agent beside their processor.
            "SLIPWAY_EMBEDDED_NODE": "false",
            "SLIPWAY_EMBEDDED_GATEWAY": "false",
            "SLIPWAY_EMBEDDED_NOTEBOOKS": "false",
            "SLIPWAY_EMBEDDED_RELAY": "false",
            # Nor MLflow's server, which takes seconds to load; tests of it set it, too.
            "SLIPWAY_EMBEDDED_TRACKING": "false",
            # Jobs find what the tests find, instead of an environment built for each installation.
            "SLIPWAY_JOB_PYTHON": sys.executable,
            # Tests reach the loopback interface alone.
            "SLIPWAY_VULNERABILITIES_URL": "off",
        }
        self._programs: list[Program] = []

    @property
    def metrics_bearer(self) -> dict[str, str]:
        """The header of who may read metrics here."""
        token = (self.data_dir / "keys" / "metrics.key").read_text().strip()
        return {"Authorization": f"Bearer {token}"}

    def manage(self, *arguments: str, **environ: str) -> "subprocess.CompletedProcess[str]":
        """Run one `manage.py` command to its end, without a terminal."""
        return subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT,
            env=self.environ | environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def start(self, *arguments: str, **environ: str) -> Program:
        """Start a Python program (`manage.py up`, `-m workers.control`) in this installation."""
        program = Program(
            [sys.executable, *arguments],
            env=self.environ | environ,
            output=self.folder / f"output-{len(self._programs)}.log",
        )
        self._programs.append(program)
        return program

    def end(self) -> None:
        """Kill everything that was started here."""
        for program in self._programs:
            program.end()


@contextlib.contextmanager
def installation(folder: Path, *, empty: bool = False, source: str = "") -> Iterator[Installation]:
    """Yield an installation whose processes are gone afterwards.

    Nobody has started it, but its database is a copy of the PostgreSQL database `source`, or has
    all its tables, unless it shall be `empty`.
    """
    with database_of_its_own(empty=empty, source=source) as database_url:
        made = Installation(folder, database_url)
        if not empty and not database_url:
            copy_tables(made.data_dir)
        try:
            yield made
        finally:
            made.end()
