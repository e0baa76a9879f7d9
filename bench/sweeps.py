"""Time of a suggestion of a sweep, after 10, 1,000 and 10,000 trials, and of its page.

    .venv/bin/python bench/sweeps.py [--json] [--sizes 10 1000 10000]

A suggestion is the values of one trial, by TPE with three parameters: it includes reading the
history from rows and building the study, which live no longer than a call. A third of the trials
was stopped early. The time is the median of several suggestions, the peer our target: 20 ms after
any number of trials. `page_p95_ms_SIZE` is the time of the portal for the page of the sweep in 95 %
of 40 requests, beside our target of 300 ms. Runs on SQLite in a temporary folder, or on the
PostgreSQL of DATABASE_URL.
"""

import argparse
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
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

from django.conf import settings  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.db import connection, transaction  # noqa: E402
from django.test import Client  # noqa: E402

from portal.accounts.models import User  # noqa: E402
from portal.accounts.services.projects import create_project  # noqa: E402
from portal.compute.resources import GIB, Amount  # noqa: E402
from portal.compute.services.tiers import create_tier  # noqa: E402
from portal.config.backends.sqlite.files import allow_creation  # noqa: E402
from portal.config.tracking_schema import prepare_tracking  # noqa: E402
from portal.core import clock  # noqa: E402
from portal.sweeps.factories import sampler  # noqa: E402
from portal.sweeps.histories import history_of  # noqa: E402
from portal.sweeps.models import Sweep, Trial, TrialRung  # noqa: E402
from portal.sweeps.ports import SuggestionInput  # noqa: E402
from portal.training.models import Job, Snapshot  # noqa: E402
from portal.training.services.uploads import ingest_upload  # noqa: E402
from portal.workloads.models import Workload  # noqa: E402
from slipway.parameter_spaces import parse_space  # noqa: E402

SIZES = (10, 1_000, 10_000)
TARGET_MS, PAGE_TARGET_MS = 20.0, 300.0
SUGGESTIONS, REQUESTS = 15, 40
RANGES = {"lr": "loguniform(1e-4,1e-1)", "layers": "choice(2,4,8)", "dropout": "uniform(0,0.5)"}


def create_sweep(trials: int, snapshot: Snapshot) -> Sweep:
    """Create a sweep with this many ended trials of random values."""
    chance = random.Random(trials)  # noqa: S311  (no secret)
    user, project = snapshot.created_by, snapshot.project
    tier = create_tier(
        name=f"One of {trials}",
        slug=f"one-{trials}",
        amount=Amount(1000, GIB),
        nano_usd_per_hour=40_000_000,
    )
    sweep = Sweep.objects.create(
        project=project,
        created_by=user,
        name="bench",
        job={},
        space={name: parse_space(name, text).model_dump() for name, text in RANGES.items()},
        metric="accuracy",
        goal="max",
        algorithm="tpe",
        trials=10_000 + trials,
        parallel=4,
        scheduler="asha",
        started=trials,
    )
    workloads = Workload.objects.bulk_create(
        Workload(
            project=project,
            kind="job",
            name=f"trial {number}",
            submitted_by=user,
            state="succeeded",
            tier=tier,
            cpu_millis=tier.cpu_millis,
            memory_bytes=tier.memory_bytes,
            spec={"argv": ["python", "train.py"]},
            waits_since=clock.now(),
        )
        for number in range(trials)
    )
    jobs = Job.objects.bulk_create(
        Job(workload=workload, snapshot=snapshot, script="train.py") for workload in workloads
    )
    rows = Trial.objects.bulk_create(
        Trial(
            sweep=sweep,
            number=number,
            job=job,
            state="pruned" if number % 3 == 1 else "complete",
            values={
                "lr": 10 ** chance.uniform(-4, -1),
                "layers": chance.choice(["2", "4", "8"]),
                "dropout": chance.uniform(0, 0.5),
            },
            value=chance.random(),
            ended_at=clock.now(),
        )
        for number, job in enumerate(jobs)
    )
    TrialRung.objects.bulk_create(
        TrialRung(
            trial=trial,
            bracket=0,
            rung=0,
            count=1,
            value=trial.value,
            is_cut=trial.state == "pruned",
        )
        for trial in rows
    )
    return sweep


def suggestion_ms(sweep: Sweep) -> float:
    """Return the milliseconds of a suggestion, as the median of several."""
    each = []
    for number in range(SUGGESTIONS):
        started = time.perf_counter()
        search = SuggestionInput(
            algorithm=sweep.algorithm,
            parameters=sweep.parameters,
            goal=sweep.objective.goal,
            seed=number,
            history=history_of(sweep),
        )
        (values,) = sampler(sweep.algorithm).suggest(search, first=sweep.started, count=1)
        each.append((time.perf_counter() - started) * 1000)
        assert set(values) == set(RANGES)
    return statistics.median(each[1:])  # the first imports Optuna


def page_ms(sweep: Sweep) -> float:
    """Return the milliseconds within which 95 % of the requests for its page are answered."""
    client = Client()
    client.force_login(sweep.created_by)
    each = []
    for _ in range(REQUESTS):
        started = time.perf_counter()
        answer = client.get(f"/p/{sweep.project.slug}/sweeps/{sweep.pk}")
        each.append((time.perf_counter() - started) * 1000)
        assert answer.status_code == 200
    return statistics.quantiles(each[1:], n=20)[-1]  # the first compiles templates


def measure(sizes: Sequence[int]) -> dict[str, dict[str, float | str]]:
    """Measure every size, and print a line for each."""
    allow_creation()
    call_command("migrate", verbosity=0)
    prepare_tracking(os.environ.get("DATABASE_URL", ""), Path(FOLDER))
    settings.ALLOWED_HOSTS = ["testserver"]
    user = User.objects.create_user("bench@example.org")
    project = create_project(by=user, name="Bench")
    snapshot = ingest_upload(project=project, by=user, name="train.py", chunks=[b"print(1)\n"])
    cases: dict[str, dict[str, float | str]] = {}
    for size in sizes:
        with transaction.atomic():
            sweep = create_sweep(size, snapshot)
        ours = suggestion_ms(sweep)
        print(f"{size:>6} trials: {ours:.1f} ms a suggestion")
        cases[f"suggest_ms_{size}"] = {
            "ours": round(ours, 2),
            "peer": TARGET_MS,
            "ratio": round(ours / TARGET_MS, 4),
            "unit": "ms",
        }
        page = page_ms(sweep)
        print(f"{size:>6} trials: {page:.1f} ms for the page, 95 % of the requests")
        cases[f"page_p95_ms_{size}"] = {
            "ours": round(page, 2),
            "peer": PAGE_TARGET_MS,
            "ratio": round(page / PAGE_TARGET_MS, 4),
            "unit": "ms",
        }
    return cases


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="ended trials")
    arguments = parser.parse_args()
    try:
        cases = measure(arguments.sizes)
    finally:
        connection.close()
        shutil.rmtree(FOLDER, ignore_errors=True)
    if arguments.json:
        print(json.dumps({"bench": "sweeps", "cases": cases}))


if __name__ == "__main__":
    main()
