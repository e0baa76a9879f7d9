"""Latency of the pages of experiments with 100,000 runs and 1,000 different columns.

    .venv/bin/python bench/runs.py [--json] [--rounds 40] [--runs 100000]
        [--points 100000]

Starts a real portal on its own database (SQLite, or DATABASE_URL) with one experiment of 100,000
runs. Each has 20 metrics and 5 parameters out of 1,000 different names, and one run has a metric
with 100,000 points. The peer of each case is our target.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "platform"), str(ROOT)]

from bench.needs import require  # noqa: E402  (the path comes first)

require()

import httpx  # noqa: E402

from bench.portal import sign_in  # noqa: E402
from tests.portals import running_portal  # noqa: E402

NOON_MS = 1_790_000_000_000
FIRST_PAINT_MS, FILTER_MS, COMPARE_MS, HISTORY_MS = 300.0, 200.0, 1000.0, 770.0
IMPORTANCE_MS = 5000.0
# Inserts rows in the same form as clients do.
_FILL = """
import json, random
from django.db import connections, transaction
from portal.accounts.models import Membership, Project, User
root = User.objects.get(email="root@example.org")
project = Project.objects.create(slug="vision", name="Vision")
Membership.objects.create(project=project, user=root, role="owner")
from portal.experiments.models import Experiment
experiment = Experiment.objects.create(
    name="digits", workspace=project.pk, lifecycle_stage="active", creation_time={noon}
)
random.seed(7)
RUNS = {runs}
tables = {{
    "runs": ("run_uuid, name, source_type, user_id, status, start_time, end_time, "
             "lifecycle_stage, artifact_uri, experiment_id", 10),
    "latest_metrics": ("key, value, timestamp, step, is_nan, run_uuid", 6),
    "params": ("key, value, run_uuid", 3),
    "metrics": ("key, value, timestamp, run_uuid, step, is_nan", 6),
}}
def insert(table, rows):
    columns, count = tables[table]
    marks = ", ".join(["%s"] * count)
    with connections["tracking"].cursor() as cursor:
        cursor.executemany(f"INSERT INTO {{table}} ({{columns}}) VALUES ({{marks}})", rows)
ids = ["%032x" % random.getrandbits(128) for _ in range(RUNS)]
for start in range(0, RUNS, 5000):
    runs, metrics, params = [], [], []
    for n in range(start, min(start + 5000, RUNS)):
        began = {noon} + n * 1000
        runs.append((ids[n], f"run-{{n}}", "UNKNOWN", "bob", "FINISHED", began, began + 500,
                     "active", "mlflow-artifacts:/x", experiment.pk))
        metrics.append(("loss", random.random(), began, 1, False, ids[n]))
        params.append(("lr", random.choice(("0.1", "0.01", "0.001")), ids[n]))
        params.append(("seed", str(n), ids[n]))
        for key in random.sample(range(700), 19):
            metrics.append((f"metric-{{key}}", random.random(), began, 1, False, ids[n]))
        for key in random.sample(range(297), 3):
            params.append((f"param-{{key}}", str(random.randrange(10)), ids[n]))
    with transaction.atomic(using="tracking"):
        insert("runs", runs)
        insert("latest_metrics", metrics)
        insert("params", params)
newest = ids[-200:]
for at, run_id in enumerate(newest):
    points = {points} if at == len(newest) - 1 else min(500, {points})
    with transaction.atomic(using="tracking"):
        insert("metrics", [("loss", random.random(), {noon} + step, run_id, step, False)
                           for step in range(points)])
with connections["tracking"].cursor() as cursor:
    cursor.execute("ANALYZE")
print("created " + json.dumps({{"experiment": experiment.pk, "newest": newest}}))
"""


def cases_of(experiment: int, newest: list[str]) -> dict[str, tuple[list[str], float]]:
    """Return for each case its URLs, requested in turn, and its target in milliseconds."""
    page = f"/p/vision/experiments/{experiment}"
    curves = "/api/v1/projects/vision/runs/curves"
    generator = random.Random(3)  # noqa: S311  (the order of filters is not a secret)

    def filtered(text: str) -> str:
        return f"{page}?{urlencode({'filter': text})}"

    thresholds = [generator.random() / 1000 for _ in range(10)]
    query = urlencode([("run", run) for run in newest])
    return {
        "first_paint": ([page], FIRST_PAINT_MS),
        "experiments": (["/p/vision/experiments"], FIRST_PAINT_MS),
        "filter_few": ([filtered(f"metrics.loss < {low:.6f}") for low in thresholds], FILTER_MS),
        "filter_many": ([filtered("metrics.loss > 0.5 and params.lr = '0.1'")], FILTER_MS),
        "filter_one": ([filtered(f"params.seed = '{n}'") for n in (5, 50, 500)], FILTER_MS),
        "filter_none": ([filtered("metrics.loss > 2")], FILTER_MS),
        "filter_rare_key": ([filtered("metrics.metric-7 > 0.9")], FILTER_MS),
        "filter_name": ([filtered("attributes.run_name = 'run-77'")], FILTER_MS),
        "sort_metric": ([f"{page}?order=metrics.loss", f"{page}?order=-metrics.loss"], FILTER_MS),
        "group": ([f"{page}?group=params.lr"], FIRST_PAINT_MS),
        "columns": ([f"/p/vision/runs/columns?experiment={experiment}"], FIRST_PAINT_MS),
        "run": ([f"/p/vision/runs/{newest[-1]}"], FIRST_PAINT_MS),
        "history_100k": ([f"{curves}?run={newest[-1]}&key=loss&points=600"], HISTORY_MS),
        "compare_200": ([f"/p/vision/compare?{query}"], COMPARE_MS),
        "compare_200_sorted": (
            [f"/p/vision/compare?{query}&only=1&sort=metrics.loss"],
            COMPARE_MS,
        ),
        "importance_200": (
            [f"/p/vision/compare/importance?{query}&target=loss"],
            COMPARE_MS,
        ),
        "importance_1000": (
            [f"/p/vision/compare/importance?experiment={experiment}&target=loss"],
            IMPORTANCE_MS,
        ),
        "compare_200_curves": ([f"{curves}?{query}&key=loss&points=120"], COMPARE_MS),
    }


def measure(browser: httpx.Client, urls: list[str], rounds: int) -> list[float]:
    """Return the milliseconds of each round, after one request per URL to warm up."""
    for url in urls:
        response = browser.get(url)
        assert response.is_success, f"{url}: {response.status_code} {response.text[:300]}"
        assert "At position" not in response.text, url
    times = []
    for number in range(rounds):
        started = time.perf_counter()
        browser.get(urls[number % len(urls)])
        times.append((time.perf_counter() - started) * 1000)
    return times


def main() -> None:
    """Print a table, and with --json one line of JSON at the end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--rounds", type=int, default=40, help="requests per case")
    parser.add_argument(
        "--runs", type=int, default=100_000, help="number of runs of the experiment"
    )
    parser.add_argument("--points", type=int, default=100_000, help="length of the longest curve")
    arguments = parser.parse_args()
    if arguments.rounds < 2:
        parser.error("percentiles need at least two --rounds")
    cases: dict[str, dict[str, Any]] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        running_portal(Path(folder), command=("portal",)) as portal,
    ):
        script = _FILL.format(noon=NOON_MS, runs=arguments.runs, points=arguments.points)
        done = subprocess.run(
            [sys.executable, "manage.py", "shell", "-c", script],
            cwd=ROOT,
            env=portal.installation.environ,
            capture_output=True,
            text=True,
            timeout=1800,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        line = next(text for text in done.stdout.splitlines() if text.startswith("created "))
        created = json.loads(line.removeprefix("created "))
        browser = sign_in(portal)
        print(f"{'case':24} {'p50 ms':>8} {'p95 ms':>8} {'bound':>8}")
        for name, (urls, bound) in cases_of(created["experiment"], created["newest"]).items():
            times = measure(browser, urls, arguments.rounds)
            p95 = statistics.quantiles(times, n=20)[-1]
            print(f"{name:24} {statistics.median(times):8.1f} {p95:8.1f} {bound:8.0f}")
            ratio = round(p95 / bound, 3)
            cases[name] = {"ours": round(p95, 1), "peer": bound, "ratio": ratio, "unit": "ms"}
    if arguments.json:
        print(json.dumps({"bench": "runs", "cases": cases}))


if __name__ == "__main__":
    main()
