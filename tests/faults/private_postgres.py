"""A PostgreSQL server of one test, which may be frozen, stopped and started again."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg

from tests.processes import ROOT, children_of, clean_environment, wait_for


class PostgresServer:
    """The server behind a DATABASE_URL, and the ways to hurt it."""

    def __init__(self, url: str) -> None:
        self.url = url
        with psycopg.connect(url) as connection:
            row = connection.execute("SHOW data_directory").fetchone()
            assert row is not None
            self._data = Path(str(row[0]))
        self._options = (self._data / "postmaster.opts").read_text()

    @property
    def _pid(self) -> int:
        return int((self._data / "postmaster.pid").read_text().split()[0])

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Freeze all processes of the server."""
        pids = [self._pid]
        os.kill(self._pid, signal.SIGSTOP)
        pids += children_of(self._pid)
        for pid in pids[1:]:
            _signal(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                _signal(pid, signal.SIGCONT)

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop the server, which then refuses connections."""
        owner = self._data.stat()
        program = Path(f"/proc/{self._pid}/exe").readlink()
        arguments = Path(f"/proc/{self._pid}/cmdline").read_bytes().decode().split("\0")[1:-1]
        pid = self._pid
        os.kill(pid, signal.SIGQUIT)
        wait_for(lambda: not Path(f"/proc/{pid}/exe").exists(), "end of the server")
        try:
            yield
        finally:
            with (self._data.parent / "again.log").open("ab") as log:
                subprocess.Popen(
                    [str(program), *arguments],
                    cwd=self._data,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    user=owner.st_uid,
                    group=owner.st_gid,
                )
            wait_for(self._answers, "server that answers")

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url).close()
        except psycopg.Error:
            return False
        return True


@contextlib.contextmanager
def postgres_server(folder: Path) -> Iterator[PostgresServer]:
    """Yield a server that nobody else uses."""
    address = folder / "database-url"
    script = f'printf %s "$DATABASE_URL" >{address}.half; mv {address}.half {address}; read'
    read, write = os.pipe()
    process = subprocess.Popen(
        ["scripts/with-postgres", "bash", "-c", script],
        cwd=ROOT,
        env=clean_environment(),
        stdin=read,
        start_new_session=True,
    )
    os.close(read)
    try:
        wait_for(address.exists, "PostgreSQL server", within_s=60)
        yield PostgresServer(address.read_text())
    finally:
        os.close(write)
        process.wait(60)


def _signal(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process of the server; connections that close meanwhile end theirs."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
