"""False alarms and power of drift detection, beside Evidently's defaults, on simulated traffic.

    .venv/bin/python bench/drift.py [--json] [--models 300] [--trials 400] [--no-peer]

`false_alarm_rate`: a model of 20 features gets traffic of the distribution it was trained on for a
week, a window of 200 to 1,000 predictions an hour; the rate is that of model weeks with any alarm.
`power_0.3sd`: one of its features moves by 0.3 standard deviations; the rate is that of runs which
find it within 2,000 predictions. An alarm of ours needs two windows in a row.

Evidently (1 GB) is installed the first time, into a virtual environment of its own, and left out
where that cannot be. It gets rows of the same seeds, and its defaults: a column drifts by the test
that its preset chooses. Its alarm is the first window in which a column drifts. A window takes it
two seconds, so it gets fewer weeks and runs (`--peer-models`, `--peer-trials`).
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "platform")]

from portal.monitoring.statistics.baselines import NUMBER, baseline_of  # noqa: E402
from portal.monitoring.statistics.drift_verdicts import DIFFERENT, compare, drifted  # noqa: E402

FEATURES, BASE_ROWS, WINDOWS_A_WEEK, WINDOW_ROWS = 20, 5_000, 168, 1_000
SHIFT_SD = 0.3
BOUND_FALSE, BOUND_POWER = 0.01, 0.95
PACKAGES = ["evidently==0.7.*", "pandas<3"]
CACHE = Path(os.environ.get("SLIPWAY_BENCH_CACHE", Path.home() / ".cache" / "slipway-bench"))
Table = NDArray[np.float64]


def _drawn(random: np.random.Generator, rows: int) -> Table:
    """Return rows of features as they are in life: normal, skewed, heavy-tailed, counts."""
    parts = [
        random.normal(size=(rows, 8)),
        random.lognormal(0, 0.5, size=(rows, 4)),
        random.exponential(size=(rows, 3)),
        random.standard_t(5, size=(rows, 2)),
        random.poisson(4, size=(rows, 3)),
    ]
    return np.hstack(parts)


def _week(seed: int) -> tuple[Table, Iterator[Table]]:
    """Return a baseline and a week of windows without drift."""
    random = np.random.default_rng(seed)
    base = _drawn(random, BASE_ROWS)
    sizes = random.integers(200, 1_001, size=WINDOWS_A_WEEK).tolist()
    return base, (_drawn(random, size) for size in sizes)


def _shifted(seed: int) -> tuple[Table, list[Table], int]:
    """Return a baseline, two windows with one feature moved, and which that is."""
    random = np.random.default_rng(10_000_000 + seed)
    base = _drawn(random, BASE_ROWS)
    moved = int(random.integers(0, FEATURES))
    windows = [_drawn(random, WINDOW_ROWS) for _ in range(2)]
    for window in windows:
        window[:, moved] += SHIFT_SD * base[:, moved].std()
    return base, windows, moved


class SlipwayDetector:
    """Slipway: significant, large enough, enough rows, twice in a row."""

    def __init__(self, base: Table) -> None:
        self._base = [baseline_of(str(at), base[:, at], kind=NUMBER) for at in range(base.shape[1])]
        self._before: list[str] = []

    def alarms(self, window: Table) -> list[str]:
        """Return the features an alarm is raised for after this window."""
        found = compare(self._base, {str(at): window[:, at] for at in range(FEATURES)})
        alarms = drifted(self._before, found)
        self._before = [one.name for one in found if one.verdict == DIFFERENT]
        return alarms


class Evidently:
    """Evidently's preset as it comes; imported in its own environment only."""

    def __init__(self, base: Table) -> None:
        names = [str(at) for at in range(FEATURES)]
        pandas = import_module("pandas")
        preset = import_module("evidently.presets").DataDriftPreset
        self._report = import_module("evidently").Report([preset()])
        self._pandas, self._names = pandas, names
        self._base = self._framed(base)

    def _framed(self, table: Table) -> Any:
        return self._pandas.DataFrame(table, columns=self._names)

    def alarms(self, window: Table) -> list[str]:
        """Return the columns that drift."""
        said = self._report.run(self._framed(window), self._base).dict()
        return [
            one["config"]["column"]
            for one in said["metrics"]
            if "ValueDrift" in one["metric_name"] and _is_drift(one)
        ]


def _is_drift(metric: dict[str, Any]) -> bool:
    value, limit = float(metric["value"]), float(metric["config"].get("threshold", 0.1))
    is_p_value = "p_value" in metric["config"].get("method", "")
    return value < limit if is_p_value else value >= limit


def _rates(
    kind: type[SlipwayDetector] | type[Evidently], models: int, trials: int
) -> dict[str, float]:
    false = 0
    for seed in range(models):
        base, windows = _week(seed)
        detector = kind(base)
        false += any(detector.alarms(window) for window in windows)
    found = 0
    for seed in range(trials):
        base, shifted, moved = _shifted(seed)
        detector = kind(base)
        found += any(str(moved) in detector.alarms(window) for window in shifted)
    return {"false_alarm_rate": false / models, "power_0.3sd": found / trials}


def _evidently_rates(models: int, trials: int) -> dict[str, float]:
    """Return Evidently's rates, of its own environment; nothing where it cannot be installed."""
    folder = CACHE / "evidently"
    ready = folder / ".ready"
    try:
        if not ready.exists():
            subprocess.run([sys.executable, "-m", "venv", folder], check=True)
            subprocess.run([folder / "bin" / "pip", "install", "-q", *PACKAGES], check=True)
            ready.touch()
    except (subprocess.CalledProcessError, OSError) as error:
        print(f"Evidently is left out, as it cannot be installed here: {error}", file=sys.stderr)
        return {}
    asked = ["--as-peer", "--models", str(models), "--trials", str(trials)]
    done = subprocess.run(
        [folder / "bin" / "python", __file__, *asked], check=True, capture_output=True, text=True
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Print a table, and with --json one line of JSON at the end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--models", type=int, default=300, help="model weeks without drift")
    parser.add_argument("--trials", type=int, default=400, help="runs with a shift")
    parser.add_argument("--no-peer", action="store_true", help="leave Evidently out")
    parser.add_argument("--peer-models", type=int, default=20, help="weeks of Evidently")
    parser.add_argument("--peer-trials", type=int, default=40, help="runs of Evidently")
    parser.add_argument("--as-peer", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.as_peer:
        print(json.dumps(_rates(Evidently, given.models, given.trials)))
        return
    ours = _rates(SlipwayDetector, given.models, given.trials)
    peer = {} if given.no_peer else _evidently_rates(given.peer_models, given.peer_trials)
    bounds = {"false_alarm_rate": f"<= {BOUND_FALSE}", "power_0.3sd": f">= {BOUND_POWER}"}
    for name, rate in ours.items():
        beside = f"{peer[name]:.4f}" if peer else "not run"
        print(f"{name:20} {rate:.4f}   wanted {bounds[name]:8} Evidently {beside}")
    if given.json:
        cases = {
            name: {"ours": rate, "peer": peer.get(name), "unit": "rate", "ratio": rate}
            for name, rate in ours.items()
        }
        print(json.dumps({"bench": "drift", "cases": cases}))


if __name__ == "__main__":
    main()
