"""Time of a scheduling decision, with 100, 10,000 and 100,000 workloads in the queue.

    .venv/bin/python bench/scheduler.py [--json] [--sizes 100 10000 100000]

A decision is one workload examined by a pass: either placed (with its leases, counters and events
committed), or left in the queue because no node has capacity. Twenty projects in five teams share
forty nodes. The time is that of whole passes, including locks and commits, divided by the number of
decisions, as the median of several passes. The peer is our target: 1 ms at every size. Runs on
SQLite in a temporary folder, or on the PostgreSQL of DATABASE_URL.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "platform"), str(ROOT)]

from bench.needs import require  # noqa: E402  (the path comes first)

require()
FOLDER = tempfile.mkdtemp(prefix="slipway-bench-")
os.environ |= {
    "SLIPWAY_DATA_DIR": FOLDER,
    "SLIPWAY_REDIS_PORT": "9",  # no server listens there: notifications are lost, which is allowed
    "SLIPWAY_LOG_LEVEL": "error",
    "DJANGO_SETTINGS_MODULE": "portal.config.settings",
}

import django  # noqa: E402  (the settings come first)

django.setup()

from django.core.management import call_command  # noqa: E402
from django.db import connection, transaction  # noqa: E402

from portal.accounts.models import Project, User  # noqa: E402
from portal.accounts.services.projects import create_project  # noqa: E402
from portal.accounts.services.teams import create_team  # noqa: E402
from portal.compute.models import Node, Tier  # noqa: E402
from portal.compute.resources import GIB, Amount  # noqa: E402
from portal.compute.services.tiers import create_tier  # noqa: E402
from portal.config.backends.sqlite.files import allow_creation  # noqa: E402
from portal.core import clock  # noqa: E402
from portal.workloads.models import Lease, Share, Task, Workload, WorkloadEvent  # noqa: E402
from portal.workloads.ports import Kind, register_kind  # noqa: E402
from portal.workloads.scheduling import run_pass  # noqa: E402

SIZES = (100, 10_000, 100_000)
TARGET_MS = 1.0
NODES = 40
CPUS_A_NODE = 48
PASSES = 9


def create_fixtures() -> tuple[User, list[Project], Tier]:
    """Create a user, twenty projects in five teams, and a tier."""
    register_kind(Kind("job", "job"))
    user = User.objects.create_user("bench@example.org")
    teams = [create_team(by=user, name=f"Team {i}") for i in range(5)]
    projects = [create_project(by=user, name=f"Project {i}", team=teams[i % 5]) for i in range(20)]
    for team in teams:
        Share.objects.create(team=team)
    for project in projects:
        Share.objects.create(project=project)
    tier = create_tier(
        name="One", slug="one", amount=Amount(1000, GIB), nano_usd_per_hour=40_000_000
    )
    return user, projects, tier


def empty() -> None:
    """Delete all workloads and nodes."""
    with connection.cursor() as cursor:
        for model in (Lease, WorkloadEvent, Task, Workload, Node):
            cursor.execute(f"DELETE FROM {model._meta.db_table}")  # noqa: S608, SLF001
    Share.objects.update(queued=0, running=0, cpu_millis=0, gpus=0, fair_millis=0, score=0.0)


def add_nodes() -> None:
    """Create idle, healthy nodes."""
    Node.objects.bulk_create(
        Node(
            name=f"node-{i}",
            token_hash=f"hash-{i}",
            address="127.0.0.1",
            backends=["process"],
            isolation=[{"backend": "process", "level": "namespaces", "features": [], "detail": ""}],
            cpu_millis=CPUS_A_NODE * 1000,
            memory_bytes=CPUS_A_NODE * 4 * GIB,
            last_seen_at=clock.now(),
        )
        for i in range(NODES)
    )


def fill(size: int, user: User, projects: list[Project], tier: Tier) -> None:
    """Queue `size` workloads, distributed evenly over the projects."""

    def workloads() -> Iterator[Workload]:
        for i in range(size):
            project = projects[i % len(projects)]
            yield Workload(
                project=project,
                team_id=project.team_id,
                kind="job",
                name=f"job {i}",
                submitted_by=user,
                state="queued",
                tier=tier,
                cpu_millis=tier.cpu_millis,
                memory_bytes=tier.memory_bytes,
                spec={"argv": ["python", "train.py"]},
                waits_since=clock.now(),
            )

    waiting = workloads()
    with transaction.atomic():
        while chunk := [w for w, _ in zip(waiting, range(5_000), strict=False)]:
            Workload.objects.bulk_create(chunk)
            Task.objects.bulk_create(Task(workload=workload, index=0) for workload in chunk)
        for project in projects:
            queued = Workload.objects.filter(project=project).count()
            Share.objects.add(project.pk, project.team_id, queued=queued)


def refresh_heartbeats() -> None:
    """Set the last heartbeat of every node to now."""
    Node.objects.update(last_seen_at=clock.now())


def timed_pass() -> tuple[float, int, int]:
    """Run one pass. Returns its milliseconds, and the numbers of placed and examined workloads."""
    refresh_heartbeats()
    started = time.perf_counter()
    result = run_pass()
    return (time.perf_counter() - started) * 1000, result.placed, result.examined


def placing_ms(size: int, user: User, projects: list[Project], tier: Tier) -> float:
    """Return the milliseconds of a placement, with `size` workloads in the queue."""
    each: list[float] = []
    rounds = PASSES if size <= 100 else 1
    for _ in range(rounds):
        empty()
        add_nodes()
        fill(size, user, projects, tier)
        for _ in range(PASSES // rounds):
            elapsed, placed, _ = timed_pass()
            assert placed, "the nodes have filled up"
            each.append(elapsed / placed)
    return statistics.median(each)


def waiting_ms() -> float:
    """Return the milliseconds of a decision when no node has capacity for a queued workload."""
    Node.objects.update(used_cpu_millis=CPUS_A_NODE * 1000 - 500)
    each = []
    for _ in range(PASSES):
        elapsed, placed, examined = timed_pass()
        assert placed == 0
        each.append(elapsed / max(1, examined))
    return statistics.median(each)


def measure(sizes: Sequence[int]) -> dict[str, dict[str, float | str]]:
    """Measure every size, and print a line for each."""
    allow_creation()
    call_command("migrate", verbosity=0)
    user, projects, tier = create_fixtures()
    cases: dict[str, dict[str, float | str]] = {}
    for size in sizes:
        placing = placing_ms(size, user, projects, tier)
        waiting = waiting_ms() if size > 100 else 0.0
        print(f"{size:>7} queued: {placing:.3f} ms if placed, {waiting:.3f} ms if left waiting")
        ours = max(placing, waiting)
        cases[f"decision_ms_{size}"] = {
            "ours": round(ours, 4),
            "peer": TARGET_MS,
            "ratio": round(ours / TARGET_MS, 4),
            "unit": "ms",
        }
    return cases


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="queued workloads")
    arguments = parser.parse_args()
    try:
        cases = measure(arguments.sizes)
    finally:
        connection.close()
        shutil.rmtree(FOLDER, ignore_errors=True)
    if arguments.json:
        print(json.dumps({"bench": "scheduler", "cases": cases}))


if __name__ == "__main__":
    main()
