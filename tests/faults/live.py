"""A running Slipway and the ways to hurt it."""

import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg
import redis

from tests.processes import (
    ROOT,
    Installation,
    Program,
    children_of,
    command_of,
    free_ports,
    wait_for,
)

_MARKS = {"redis": "redis-server", "control": "workers.control", "portal": "manage.py portal"}
_QUEUE = """
from django.db import transaction
from portal.accounts.mail import queue_mail
with transaction.atomic():
    for number in range({count}):
        queue_mail(to="ada@example.org", subject=f"{prefix} {{number}}", body="hello")
"""
_MAKE_TOKEN = """
from portal.accounts.models import User
from portal.accounts.services.projects import create_project
from tests.personas import make_token
root = User.objects.get(email="admin@localhost")
create_project(by=root, name="Vision")
print(make_token(root))
"""


class Live:
    """`manage.py up` in an installation, its children by name, its mails."""

    def __init__(self, place: Installation) -> None:
        self.place = place
        self.outbox = place.data_dir / "outbox"
        self.url = f"http://localhost:{place.portal_port}"

    def start(self, *, within_s: float = 60, **environ: str) -> None:
        """Start everything and wait until it is ready."""
        self.place.environ |= environ
        self.program = self.place.start("manage.py", "up", "--no-input")
        self.program.wait_for_text("Slipway is ready", within_s=within_s)

    def pid_of(self, name: str) -> int:
        """Return the process id of redis, control or portal; 0 while there is none."""
        children = children_of(self.program.pid)
        return next((pid for pid in children if _MARKS[name] in command_of(pid)), 0)

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a process of it."""
        os.kill(self.pid_of(name), number)

    @contextmanager
    def frozen(self, name: str) -> Iterator[None]:
        """Freeze a process of it for a while, and the supervisor, which would replace it."""
        pids = (self.program.pid, self.pid_of(name))
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in reversed(pids):
                os.kill(pid, signal.SIGCONT)

    def kill(self, mark: str) -> None:
        """kill -9 of the child with `mark` in its command; returns when there is another one."""
        pids = [pid for pid in children_of(self.program.pid) if mark in command_of(pid)]
        os.kill(pids[0], signal.SIGKILL)

        def another() -> bool:
            children = children_of(self.program.pid)
            return any(mark in command_of(pid) for pid in children if pid not in pids)

        wait_for(another, f"another {mark}", within_s=10)

    def another_control(self) -> tuple[Program, int]:
        """Start one more control worker; returns it and its health port once it is ready."""
        (port,) = free_ports(1)
        program = self.place.start("-m", "workers.control", SLIPWAY_CONTROL_HEALTH_PORT=str(port))
        wait_for(lambda: self.beat_of(port), "second control worker")
        return program, port

    def beat_of(self, port: int = 0) -> str:
        """Return `leads` or `stands by`, as a control worker says itself; empty if it is mute."""
        port = port or self.place.control_health_port
        try:
            answer = httpx.get(
                f"http://127.0.0.1:{port}/readyz", headers=self.place.metrics_bearer, timeout=3
            )
        except httpx.TransportError:
            return ""
        checks = answer.json()["checks"]
        return str(checks["beat"]["detail"]) if checks["worker"]["ok"] else ""

    def tasks_run(self, name: str) -> int:
        """Return how often the control worker has run a task, by its own metrics."""
        url = f"http://127.0.0.1:{self.place.control_health_port}/metrics"
        match = re.search(
            rf'^slipway_tasks_total{{outcome="success",task="{name}"}} (\d+)',
            httpx.get(url, headers=self.place.metrics_bearer, timeout=3).text,
            re.MULTILINE,
        )
        return int(match.group(1)) if match else 0

    def redis(self) -> "redis.Redis[bytes]":
        """Return a client of the embedded Redis."""
        password = (self.place.data_dir / "keys" / "redis.key").read_text().strip()
        return redis.Redis(port=self.place.redis_port, password=password)

    def queue_mails(self, count: int, prefix: str = "Mail") -> None:
        """Queue mails as the portal does, from a process of their own."""
        self.run(_QUEUE.format(count=count, prefix=prefix))

    def api(self) -> httpx.Client:
        """Return a client of the REST API for the administrator, who owns the project `vision`."""
        token = self.run(_MAKE_TOKEN).split()[-1]
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.Client(base_url=f"{self.url}/api/v1", headers=headers, timeout=30)

    def run(self, code: str) -> str:
        """Run Python inside the installation, in a process of its own; returns what it printed."""
        done = subprocess.run(
            [sys.executable, "manage.py", "shell", "--verbosity", "0", "--command", code],
            cwd=ROOT,
            env=self.place.environ,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def delivered(self, prefix: str = "Mail") -> "Counter[str]":
        """Count the delivered mails by subject."""
        texts = [path.read_text() for path in self.outbox.glob("*.log")]
        return Counter(re.findall(rf"^Subject: ({prefix} \d+)$", "\n".join(texts), re.MULTILINE))

    def wait_for_mails(self, count: int, prefix: str = "Mail", *, within_s: float) -> float:
        """Wait until that many different mails left, each once; returns the seconds it took."""
        began = time.monotonic()
        wait_for(
            lambda: len(self.delivered(prefix)) >= count,
            f"{count} mails (there are {len(self.delivered(prefix))})",
            within_s=within_s,
        )
        took = time.monotonic() - began
        mails = self.delivered(prefix)
        assert sum(mails.values()) == count, mails
        return took

    def sql(self, query: str) -> Any:
        """Return the first value of a query on its database."""
        url = self.place.environ["DATABASE_URL"]
        if url:
            with psycopg.connect(url) as connection:
                row = connection.execute(query.encode()).fetchone()
        else:
            path = Path(self.place.data_dir) / "slipway.sqlite3"
            with sqlite3.connect(path) as lite:
                row = lite.execute(query).fetchone()
            lite.close()
        assert row is not None
        return row[0]
