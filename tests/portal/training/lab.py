"""A real portal with one machine: the scheduler passes when told, the machine says what is told."""

import secrets
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

import slipway
from slipway.schemas.training import JobOut
from tests.live import ROOT, LivePortal
from tests.portal.workloads.machines import facts, unix_ms
from tests.processes import wait_for

# Runs beside the portal, on its database.
_BESIDE = """
import sys
from portal.compute.services.node_registration import create_join_token
from portal.workloads.scheduling import run_passes
for line in sys.stdin:
    verb, name = line.split()
    result = create_join_token(by=None, node=name).secret if verb == "join" else run_passes()
    print("said", result, flush=True)
"""


@dataclass(frozen=True)
class Task:
    """A task a machine was told to run."""

    id: str
    epoch: int
    first_rank: int
    spec: Mapping[str, Any]


class Lab:
    """The portal, the process beside it, a machine and a tier of its own."""

    def __init__(self, portal: LivePortal) -> None:
        self.portal = portal
        self._beside = subprocess.Popen(
            [sys.executable, str(ROOT / "manage.py"), "shell", "--no-imports", "-c", _BESIDE],
            cwd=ROOT,
            env=portal.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        name = f"lab-{secrets.token_hex(3)}"
        self.tier = f"tier-{secrets.token_hex(3)}"
        self._label = {"lab": name}
        self._facts = facts(labels=self._label).model_dump(mode="json")
        joined = httpx.post(
            f"{portal.url}/api/agent/v1/join",
            json={"join_token": self.ask("join", name), "name": name, "facts": self._facts},
        )
        joined.raise_for_status()
        self._http = httpx.Client(
            base_url=f"{portal.url}/api/agent/v1/",
            headers={"Authorization": f"Bearer {joined.json()['node_token']}"},
            timeout=30,
        )
        self.beat()
        self._make_tier()

    def ask(self, verb: str, name: str = "-") -> str:
        """Let the process beside the portal do something."""
        assert self._beside.stdin is not None
        assert self._beside.stdout is not None
        self._beside.stdin.write(f"{verb} {name}\n")
        self._beside.stdin.flush()
        return next(line for line in self._beside.stdout if line.startswith("said ")).split()[1]

    def end(self) -> None:
        """End the process beside the portal."""
        self._http.close()
        self._beside.kill()
        self._beside.communicate()

    def _make_tier(self) -> None:
        tier = {
            "name": self.tier,
            "slug": self.tier,
            "resources": {"cpu_millis": 1000, "memory_bytes": 2**30},
            "labels": self._label,
            "nano_usd_per_hour": 3_600_000_000,
        }
        token = self.portal.tokens["root"]
        answer = httpx.post(
            f"{self.portal.url}/api/v1/tiers",
            json=tier,
            headers={"Authorization": f"Bearer {token}"},
        )
        answer.raise_for_status()

    def beat(self) -> None:
        """Send a heartbeat."""
        body = {"boot_id": "b", "facts": self._facts, "cpu_percent": 1, "memory_used_bytes": 1}
        self._http.post("heartbeat", json=body).raise_for_status()

    def place(self, job: JobOut) -> Task:
        """Let the scheduler place a job here, and return its task."""
        self.beat()

        def placed_task() -> Task | None:
            self.ask("pass")
            for task in self._http.get("desired").raise_for_status().json()["tasks"]:
                if task["workload_id"] == job.workload.id and task["action"] == "start":
                    spec = task["spec"]
                    return Task(task["task_id"], task["epoch"], spec["first_rank"], spec)
            return None

        task = wait_for(placed_task, "task of the job")
        assert task is not None
        return task

    def report(self, task: Task, sequence: int, kind: str, **more: Any) -> None:
        """Report on a task."""
        report = {"task_id": task.id, "epoch": task.epoch, "sequence": sequence, "kind": kind}
        body = {"reports": [report | {"at_unix_ms": unix_ms()} | more]}
        answer = self._http.post("reports", json=body).raise_for_status()
        assert answer.json() == {"accepted": 1, "stale": []}, answer.text

    def log(self, task: Task, offset: int, data: bytes, *, rank: int = 0, end: bool = False) -> int:
        """Send bytes of a log, then say that it ends where `end` is set; returns its size."""
        path = f"logs/{task.id}/{task.epoch}/{rank}"
        kind = {"Content-Type": "application/octet-stream"}
        for place in range(0, len(data), 2**22):
            piece = data[place : place + 2**22]
            answer = self._http.put(
                path, params={"offset": offset + place}, content=piece, headers=kind
            )
            answer.raise_for_status()
        size = offset + len(data)
        if end:
            query: dict[str, Any] = {"offset": size, "last": "true"}
            self._http.put(path, params=query, content=b"", headers=kind).raise_for_status()
        return size

    def sample(self, task: Task, cpu_percent: float) -> None:
        """Send a sample of use."""
        sample = {"task_id": task.id, "epoch": task.epoch, "at_unix_ms": unix_ms()}
        use = {"cpu_percent": cpu_percent, "memory_bytes": 1}
        self._http.post("samples", json={"samples": [sample | use]}).raise_for_status()

    def fetch_code(self, task: Task) -> bytes:
        """Fetch the snapshot of a task."""
        return self._http.get(f"snapshots/{task.spec['snapshot']}").raise_for_status().content


def threads_of(portal: LivePortal) -> int:
    """Return how many threads the portal's process has."""
    mark = f"SLIPWAY_PUBLIC_URL={portal.url}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            is_it = mark in (folder / "environ").read_bytes().split(b"\0")
            if is_it and b"uvicorn" in (folder / "cmdline").read_bytes():
                return len(list((folder / "task").iterdir()))
    raise AssertionError("the portal does not run")


def client_of(portal: LivePortal, name: str) -> slipway.Client:
    """Return the SDK as one of the people of the portal."""
    return slipway.Client(portal.url, portal.tokens[name])
