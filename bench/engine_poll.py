"""Work of a round of the control worker with 1,000 allocations of a Slurm pool in flight.

    .venv/bin/python bench/engine_poll.py [--json] [--size 1000] [--rounds 7]

Workloads are ordered in a real cluster on this machine, where all wait. A look is what the engine
is asked for them, beside `squeue` alone; a round is all that the control worker does each second.
Medians of rounds in which nothing changes. SQLite in a temporary folder, or the PostgreSQL of
DATABASE_URL.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
from django.test.utils import CaptureQueriesContext  # noqa: E402

from portal.accounts.models import User  # noqa: E402
from portal.accounts.services.projects import create_project  # noqa: E402
from portal.compute.engines import engine_kinds  # noqa: E402
from portal.compute.models import Pool  # noqa: E402
from portal.compute.resources import GIB, Amount  # noqa: E402
from portal.compute.services.tiers import create_tier  # noqa: E402
from portal.config.backends.sqlite.files import allow_creation  # noqa: E402
from portal.core import clock  # noqa: E402
from portal.workloads.allocations import tend_allocations  # noqa: E402
from portal.workloads.models import Allocation, Share, Task, Workload  # noqa: E402
from tests.slurm_cluster import SlurmCluster, missing_programs, running_slurm  # noqa: E402

_STEADY_WITHIN_S = 120.0
_ROUND_EVERY_S = 1.0


def fill(pool: Pool, size: int) -> None:
    """Queue `size` workloads of one person in one project."""
    user = User.objects.create_user("bench@example.org")
    project = create_project(by=user, name="Bench")
    Share.objects.create(project=project)
    tier = create_tier(
        name="One", slug="one", amount=Amount(1000, GIB), nano_usd_per_hour=40_000_000
    )
    with transaction.atomic():
        workloads = Workload.objects.bulk_create(
            Workload(
                project=project,
                kind="job",
                name=f"job {number}",
                submitted_by=user,
                state="queued",
                tier=tier,
                pool=pool,
                cpu_millis=tier.cpu_millis,
                memory_bytes=tier.memory_bytes,
                spec={"argv": ["python", "train.py"]},
                waits_since=clock.now(),
            )
            for number in range(size)
        )
        Task.objects.bulk_create(Task(workload=workload, index=0) for workload in workloads)
        Share.objects.add(project.pk, None, queued=size)


def order(size: int) -> float:
    """Order all, wait until nothing changes any more, and return the seconds of the orders."""
    began = time.monotonic()
    tend_allocations()
    seconds = time.monotonic() - began
    ordered = Allocation.objects.exclude(handle="").count()
    if ordered != size:
        raise SystemExit(
            f"{ordered} of {size} workloads were ordered: {Pool.objects.get().problem}"
        )
    deadline = time.monotonic() + _STEADY_WITHIN_S
    while Allocation.objects.exclude(detail__startswith="PartitionDown").exists():
        if time.monotonic() > deadline:
            raise SystemExit("Slurm gives other reasons than that the partition is down.")
        tend_allocations()
    return seconds


def median_s(work: Callable[[], object], rounds: int) -> float:
    """Return the median of the seconds of some work."""
    seconds = []
    for _ in range(rounds):
        began = time.monotonic()
        work()
        seconds.append(time.monotonic() - began)
    return statistics.median(seconds)


def measure(cluster: SlurmCluster, size: int, rounds: int) -> dict[str, Any]:
    """Order `size` workloads and measure looks and rounds."""
    cluster.run("scontrol", "update", "partition=main", "state=down")
    settings = {"partition": "main", "slurm_conf": str(cluster.conf)}
    pool = Pool.objects.create(name="twin", engine="slurm", settings=settings, most_requests=size)
    fill(pool, size)
    order_s = order(size)
    submissions = Allocation.objects.values_list("batch").distinct().count()
    handles = list(Allocation.objects.values_list("handle", flat=True))
    engine = engine_kinds()["slurm"].open(pool.pk, pool.settings)
    look_s = median_s(lambda: engine.look(handles), rounds)
    squeue = ("squeue", "--noheader", "--array", "--states=all")
    squeue_s = median_s(lambda: cluster.run(*squeue), rounds)
    round_s = median_s(tend_allocations, rounds)
    with CaptureQueriesContext(connection) as queries:
        tend_allocations()
    print(f"order {size}: {order_s:.2f} s, {submissions} submissions")
    print(f"look: {look_s:.3f} s, squeue alone {squeue_s:.3f} s")
    print(f"round: {round_s:.3f} s, {len(queries)} queries", flush=True)
    return {
        f"slurm_look_{size}": {
            "ours": round(look_s, 4),
            "peer": round(squeue_s, 4),
            "ratio": round(look_s / squeue_s, 4),
            "unit": "s",
        },
        # It is due each second.
        f"slurm_round_{size}": {
            "ours": round(round_s, 4),
            "peer": _ROUND_EVERY_S,
            "ratio": round(round_s / _ROUND_EVERY_S, 4),
            "unit": "s",
        },
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    if missing := missing_programs():
        raise SystemExit(f"Slurm is not installed: {', '.join(missing)}")
    try:
        allow_creation()
        call_command("migrate", verbosity=0)
        with running_slurm(Path(FOLDER) / "slurm", nodes=1) as cluster:
            cases = measure(cluster, arguments.size, arguments.rounds)
    finally:
        shutil.rmtree(FOLDER, ignore_errors=True)
    if arguments.json:
        print(json.dumps({"bench": "engine_poll", "cases": cases}))


if __name__ == "__main__":
    main()
