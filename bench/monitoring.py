"""Latency of monitoring reports over ten million captured predictions of fifty columns.

    .venv/bin/python bench/monitoring.py [--json] [--predictions 10000000] [--rounds 20]
        [--days 30] [--pause]

Writes 30 days of flat Parquet and hourly summaries into a temporary folder and database, in the
form that the control worker produces. Then requests reports of a day and a month from a real
portal: of everything, of a revision and of a slice. Also searches predictions by id, by value and
by caller. The peer is our target: a p95 of 1 s for a day and 3 s for a month, and a peak memory of
the portal of 1 GiB.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "platform"), str(ROOT)]

from bench.needs import require  # noqa: E402  (the path comes first)

require()

from bench.django_for_tests import set_up  # noqa: E402

set_up()

from tests.portals import RunningPortal, running_portal  # noqa: E402

DAY_MS, MONTH_MS, PEAK_MIB = 1_000.0, 3_000.0, 1_024.0
DAYS, COLUMNS = 30, 50
# The hours are written in the form that a pass of the control worker leaves, because ten million
# predictions through a gateway would take a day. Our code computes baseline, bins and summaries.
_FILL = """
from datetime import timedelta
import numpy as np
import pyarrow as pa
from portal.accounts.models import Membership, Project, User
from portal.compute.resources import GIB, Amount
from portal.compute.services.tiers import create_tier
from portal.core import clock
from portal.endpoints.models import Endpoint, Revision
from portal.monitoring.analysis.flatten import FACTS, write_whole
from portal.monitoring.paths import flat_hour
from portal.monitoring.models import BaselineRecord, CapturedHour, HourSummary, Monitor
from portal.monitoring.statistics.baselines import baseline_of, bin_values
from slipway.schemas.endpoints import LimitsIn, RollbackRules

total, days, columns = PREDICTIONS, DAYS, COLUMNS
root = User.objects.get(email="root@example.org")
project = Project.objects.create(slug="watched", name="Watched")
Membership.objects.create(project=project, user=root, role="owner")
tier = create_tier(name="bench", slug="bench", amount=Amount(cpu_millis=1000, memory_bytes=GIB),
                   nano_usd_per_hour=1)
endpoint = Endpoint.objects.create(project=project, name="bench", made_by=root, tier=tier,
    state="serving", limits=LimitsIn().model_dump(), rules=RollbackRules().model_dump())
revision = Revision.objects.create(endpoint=endpoint, number=1, made_by=root, model="m",
    model_version="1", served={}, state="serving", weight=100)
random = np.random.default_rng(0)
names = [f"in.f{at}" for at in range(columns - 2)]
bases = [baseline_of(name, random.normal(size=5000), kind="number") for name in names]
BaselineRecord.objects.create(revision_id=revision.pk, source="logged", words="bench", rows=5000,
                              features=[base.as_json() for base in bases])
Monitor.objects.create(endpoint=endpoint,
    columns=dict.fromkeys([*names, "out.prediction", "out.confidence"], "number"))
hours = days * 24
each = max(1, total // hours)
now = clock.now().replace(minute=0, second=0, microsecond=0)
for back in range(hours, 0, -1):
    hour = now - timedelta(hours=back)
    start = int(hour.timestamp() * 1_000_000)
    at = np.sort(random.integers(start, start + 3_600_000_000, size=each))
    order = np.argsort(draw := random.integers(0, 65_536, size=each))
    ids = np.array([f"prd_{back:05d}{number:021d}" for number in range(each)])
    values = {name: random.normal(size=each) for name in names}
    metadata = {
        "prediction_id": ids[order], "row": np.zeros(each, np.int32), "at": at[order],
        "revision": [revision.pk] * each, "model_version": ["1"] * each,
        "key_id": np.array(["key_a", "key_b"])[random.integers(0, 2, size=each)],
        "own_id": [""] * each, "latency_us": random.integers(500, 5000, size=each),
        "is_shadow": np.zeros(each, bool), "is_fallback": np.zeros(each, bool),
        "draw": draw[order], "failed_status": [None] * each,
    }
    arrays = [pa.array(metadata[field.name], field.type) for field in FACTS]
    arrays += [pa.array(values[name]) for name in names]
    arrays += [pa.array(random.normal(size=each)), pa.array(random.random(each))]
    folder = flat_hour(endpoint.pk, hour)
    folder.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_arrays(
        arrays, names=[*FACTS.names, *names, "out.prediction", "out.confidence"])
    write_whole(table, folder / "all.parquet")
    CapturedHour.objects.create(endpoint=endpoint, hour=hour, parts=["all.parquet"],
                                is_stale=False, is_closed=True)
    HourSummary.objects.create(endpoint=endpoint, hour=hour, revision_id=revision.pk, rows=each,
        predictions=each, latency_ms={"p50": 1.0, "p95": 4.0},
        counts={base.name: bin_values(base, values[base.name]).tolist() for base in bases})
print("known", ids[0])
"""
_FILLS_WITHIN_S = 3600.0


def _measure(running: RunningPortal, rounds: int, known: str) -> dict[str, list[float]]:
    """Request every view `rounds` times. Returns milliseconds by view."""
    endpoint = "/projects/watched/endpoints/bench"
    times: dict[str, list[float]] = {}
    now = time.time()
    spans = {
        name: format_timestamp(now - days * 86_400) for name, days in (("day", 1), ("month", 30))
    }
    calls = {
        f"{name}: {kind}": f"{endpoint}/monitoring?since={since}{more}"
        for name, since in spans.items()
        for kind, more in (
            ("all", ""),
            ("a revision", "&revision=1"),
            ("a slice", "&feature=f3&operator=%3E&value=1.5"),
        )
    }
    for name, since in spans.items():
        calls[f"{name}: by value"] = (
            f"{endpoint}/predictions?since={since}&feature=f7&operator=%3E&value=4"
        )
        calls[f"{name}: by caller"] = f"{endpoint}/predictions?since={since}&caller=key_a"
    calls["month: by id"] = f"{endpoint}/predictions?prediction_id={known}"
    with running.client("root") as api:
        for _ in range(rounds):
            for name, path in calls.items():
                started = time.perf_counter()
                api.get(path).raise_for_status()
                times.setdefault(name, []).append(1_000 * (time.perf_counter() - started))
    return times


def fill(running: RunningPortal, predictions: int, days: int) -> str:
    """Write the predictions. Returns the id of one of them."""
    started = time.perf_counter()
    script = _FILL
    for name, value in (("PREDICTIONS", predictions), ("DAYS", days), ("COLUMNS", COLUMNS)):
        script = script.replace(name, str(value))
    program = running.installation.start("manage.py", "shell", "--no-imports", "-c", script)
    if program.wait(within_s=_FILLS_WITHIN_S):
        raise SystemExit(program.text())
    print(f"{predictions:,} predictions written in {time.perf_counter() - started:.0f} s")
    lines = program.text().splitlines()
    return next(line for line in lines if line.startswith("known ")).split()[1]


def _peak_mib(running: RunningPortal) -> float:
    """Return the peak memory of the portal."""
    status = Path(f"/proc/{running.program.process.pid}/status").read_text(encoding="utf-8")
    line = next(text for text in status.splitlines() if text.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


def format_timestamp(unix_s: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(unix_s))


def main() -> None:
    """Print a table, and with --json one line of JSON at the end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--predictions", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--days", type=int, default=DAYS, help="days with predictions")
    parser.add_argument(
        "--pause", action="store_true", help="wait for Enter after writing the data"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, running_portal(Path(folder)) as running:
        known = fill(running, arguments.predictions, arguments.days)
        if arguments.pause:
            input("Data written. Press Enter to start measuring. ")
        results = _measure(running, arguments.rounds, known)
        peak_mib = _peak_mib(running)
    print(f"{'peak of the portal':20} {peak_mib:8.0f} MiB  bound {PEAK_MIB:6.0f}")
    cases = {
        "memory": {
            "ours": round(peak_mib, 1),
            "peer": PEAK_MIB,
            "ratio": round(peak_mib / PEAK_MIB, 3),
            "unit": "MiB",
        }
    }
    for name, times in results.items():
        p95 = sorted(times)[max(0, round(0.95 * len(times)) - 1)]
        bound = DAY_MS if name.startswith("day") else MONTH_MS
        print(f"{name:20} {p95:8.0f} ms   bound {bound:6.0f}   ratio {p95 / bound:.2f}")
        cases[name] = {
            "ours": round(p95, 1),
            "peer": bound,
            "ratio": round(p95 / bound, 3),
            "unit": "ms",
        }
    if arguments.json:
        print(json.dumps({"bench": "monitoring", "cases": cases}))


if __name__ == "__main__":
    main()
