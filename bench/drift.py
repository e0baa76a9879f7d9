"""False alarm rate and power of drift detection, compared with Evidently, on simulated traffic.

    .venv/bin/python bench/drift.py [--json] [--models 300] [--trials 400] [--no-peer]

`false_alarm_rate`: a model with 20 features receives traffic from its training distribution for a
week, in windows of 200 to 1,000 predictions an hour. The rate is the share of model weeks with an
alarm. `power_0.3sd`: one feature shifts by 0.3 standard deviations. The rate is the share of runs
that detect it within 2,000 predictions. Slipway raises an alarm after two drifted windows in a row.

Evidently (1 GB) is installed on first use, into its own virtual environment, and skipped if that
fails. It gets rows from the same seeds and uses its defaults: its preset chooses the test of each
column. Its alarm is the first window with a drifted column. A window takes it two seconds, so it
gets fewer weeks and runs (`--peer-models`, `--peer-trials`).
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

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "platform"), str(ROOT)]

from bench.needs import require  # noqa: E402  (the path comes first)

require(["numpy"])

import numpy as np  # noqa: E402
from numpy.typing import NDArray  # noqa: E402

from portal.monitoring.statistics.baselines import NUMBER, baseline_of  # noqa: E402
from portal.monitoring.statistics.drift_verdicts import DIFFERENT, compare, drifted  # noqa: E402

FEATURES, BASE_ROWS, WINDOWS_A_WEEK, WINDOW_ROWS = 20, 5_000, 168, 1_000
SHIFT_SD = 0.3
BOUND_FALSE, BOUND_POWER = 0.01, 0.95
PACKAGES = ["evidently==0.7.*", "pandas<3"]
CACHE = Path(os.environ.get("SLIPWAY_BENCH_CACHE", Path.home() / ".cache" / "slipway-bench"))
Table = NDArray[np.float64]


def _draw_rows(random: np.random.Generator, rows: int) -> Table:
    """Return rows of realistic features: normal, skewed, heavy-tailed and counts."""
    parts = [
        random.normal(size=(rows, 8)),
        random.lognormal(0, 0.5, size=(rows, 4)),
        random.exponential(size=(rows, 3)),
        random.standard_t(5, size=(rows, 2)),
        random.poisson(4, size=(rows, 3)),
    ]
    return np.hstack(parts)


def _week_without_drift(seed: int) -> tuple[Table, Iterator[Table]]:
    """Return a baseline and a week of windows without drift."""
    random = np.random.default_rng(seed)
    base = _draw_rows(random, BASE_ROWS)
    sizes = random.integers(200, 1_001, size=WINDOWS_A_WEEK).tolist()
    return base, (_draw_rows(random, size) for size in sizes)


def _shifted_windows(seed: int) -> tuple[Table, list[Table], int]:
    """Return a baseline, two windows with one shifted feature, and the index of that feature."""
    random = np.random.default_rng(10_000_000 + seed)
    base = _draw_rows(random, BASE_ROWS)
    feature = int(random.integers(0, FEATURES))
    windows = [_draw_rows(random, WINDOW_ROWS) for _ in range(2)]
    for window in windows:
        window[:, feature] += SHIFT_SD * base[:, feature].std()
    return base, windows, feature


class SlipwayDetector:
    """Slipway's rule: a significant and large change, with enough rows, twice in a row."""

    def __init__(self, base: Table) -> None:
        self._base = [
            baseline_of(str(column), base[:, column], kind=NUMBER)
            for column in range(base.shape[1])
        ]
        self._before: list[str] = []

    def alarms(self, window: Table) -> list[str]:
        """Return the features for which this window raises an alarm."""
        comparisons = compare(self._base, {str(at): window[:, at] for at in range(FEATURES)})
        alarms = drifted(self._before, comparisons)
        self._before = [
            comparison.name for comparison in comparisons if comparison.verdict == DIFFERENT
        ]
        return alarms


class Evidently:
    """Evidently's preset with its defaults. Imported only in its own environment."""

    def __init__(self, base: Table) -> None:
        names = [str(at) for at in range(FEATURES)]
        pandas = import_module("pandas")
        preset = import_module("evidently.presets").DataDriftPreset
        self._report = import_module("evidently").Report([preset()])
        self._pandas, self._names = pandas, names
        self._base = self._to_frame(base)

    def _to_frame(self, table: Table) -> Any:
        return self._pandas.DataFrame(table, columns=self._names)

    def alarms(self, window: Table) -> list[str]:
        """Return the columns that drift."""
        result = self._report.run(self._to_frame(window), self._base).dict()
        return [
            metric["config"]["column"]
            for metric in result["metrics"]
            if "ValueDrift" in metric["metric_name"] and _is_drift(metric)
        ]


def _is_drift(metric: dict[str, Any]) -> bool:
    value, limit = float(metric["value"]), float(metric["config"].get("threshold", 0.1))
    is_p_value = "p_value" in metric["config"].get("method", "")
    return value < limit if is_p_value else value >= limit


def _rates(
    kind: type[SlipwayDetector] | type[Evidently], models: int, trials: int
) -> dict[str, float]:
    false_alarms = 0
    for seed in range(models):
        base, windows = _week_without_drift(seed)
        detector = kind(base)
        false_alarms += any(detector.alarms(window) for window in windows)
    detected = 0
    for seed in range(trials):
        base, shifted, feature = _shifted_windows(seed)
        detector = kind(base)
        detected += any(str(feature) in detector.alarms(window) for window in shifted)
    return {"false_alarm_rate": false_alarms / models, "power_0.3sd": detected / trials}


def _evidently_rates(models: int, trials: int) -> dict[str, float]:
    """Return Evidently's rates from its own environment, or {} if it cannot be installed."""
    folder = CACHE / "evidently"
    ready = folder / ".ready"
    try:
        if not ready.exists():
            subprocess.run([sys.executable, "-m", "venv", folder], check=True)
            subprocess.run([folder / "bin" / "pip", "install", "-q", *PACKAGES], check=True)
            ready.touch()
    except (subprocess.CalledProcessError, OSError) as error:
        print(f"Evidently is skipped, because it cannot be installed: {error}", file=sys.stderr)
        return {}
    arguments = ["--as-peer", "--models", str(models), "--trials", str(trials)]
    done = subprocess.run(
        [folder / "bin" / "python", __file__, *arguments],
        check=True,
        capture_output=True,
        text=True,
    )
    rates: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return rates


def main() -> None:
    """Print a table, and with --json one line of JSON at the end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--models", type=int, default=300, help="model weeks without drift")
    parser.add_argument("--trials", type=int, default=400, help="runs with a shift")
    parser.add_argument("--no-peer", action="store_true", help="skip Evidently")
    parser.add_argument(
        "--peer-models", type=int, default=20, help="model weeks without drift for Evidently"
    )
    parser.add_argument(
        "--peer-trials", type=int, default=40, help="runs with a shift for Evidently"
    )
    parser.add_argument("--as-peer", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.as_peer:
        print(json.dumps(_rates(Evidently, arguments.models, arguments.trials)))
        return
    ours = _rates(SlipwayDetector, arguments.models, arguments.trials)
    peer = (
        {} if arguments.no_peer else _evidently_rates(arguments.peer_models, arguments.peer_trials)
    )
    bounds = {"false_alarm_rate": f"<= {BOUND_FALSE}", "power_0.3sd": f">= {BOUND_POWER}"}
    for name, rate in ours.items():
        evidently = f"{peer[name]:.4f}" if peer else "not run"
        print(f"{name:20} {rate:.4f}   target {bounds[name]:8} Evidently {evidently}")
    if arguments.json:
        cases = {
            name: {"ours": rate, "peer": peer.get(name), "unit": "rate", "ratio": rate}
            for name, rate in ours.items()
        }
        print(json.dumps({"bench": "drift", "cases": cases}))


if __name__ == "__main__":
    main()
