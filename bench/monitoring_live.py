"""Cost of continuous monitoring for predictions: an analysis every ten seconds of new data.

    .venv/bin/python bench/monitoring_live.py [--json] [--rate 1000] [--seconds 30] [--rounds 3]
        [--settle-seconds 15]

A complete Slipway serves a model of 50 columns, with predictions at a steady rate on two
connections. Alternately, the process that analyses captured data is stopped (the peer) and
continued. Its backlog is processed before measuring. Everything else runs in both cases. For the
worst case, summarising a month repeatedly, see `monitoring_load.py`.
"""

import argparse
import http.client
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "platform"), str(ROOT)]

from bench.needs import DEVELOPMENT, require  # noqa: E402  (the path comes first)

require([*DEVELOPMENT, "numpy", "mlflow"])

import numpy as np  # noqa: E402

from tests.integration.serving.living import Endpoints, running_endpoints  # noqa: E402
from tests.processes import children_of, command_of, wait_for  # noqa: E402

_CONNECTIONS, _COLUMNS = 2, 50
_STARTS_WITHIN_S = 120.0
_WATCHED = "watched"


def _predict(port: int, key: str, every_s: float, until: float, took_ms: list[float]) -> None:
    """Send predictions at a steady rate until `until`, and append their latencies to `took_ms`."""
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    rows = np.random.default_rng(0).normal(size=(256, 1, _COLUMNS)).round(4).tolist()
    bodies = [json.dumps({"inputs": row}).encode() for row in rows]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    due, number = time.monotonic() + every_s, 0
    while due < until:
        time.sleep(max(0.0, due - time.monotonic()))
        started = time.monotonic()
        connection.request("POST", f"/v1/{_WATCHED}/predict", bodies[number % 256], headers)
        response = connection.getresponse()
        response.read()
        took_ms.append(1_000 * (time.monotonic() - started))
        if response.status != 200:
            raise SystemExit(f"a prediction failed with status {response.status}")
        due, number = due + every_s, number + 1
    connection.close()


def _latencies(port: int, key: str, rate: float, seconds: float) -> list[float]:
    results: list[list[float]] = [[] for _ in range(_CONNECTIONS)]
    until = time.monotonic() + seconds
    every_s = _CONNECTIONS / rate
    threads = [
        threading.Thread(target=_predict, args=(port, key, every_s, until, took_ms))
        for took_ms in results
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [latency for took_ms in results for latency in took_ms]


def _analysis_pids(root: int) -> list[int]:
    """Return the analysis processes below one process, and not those of another Slipway."""
    pids = [root]
    for pid in pids:
        pids += children_of(pid)
    return [pid for pid in pids if " portal.monitoring.analysis " in command_of(pid)]


@contextmanager
def _without_analysis(root: int, predict: Callable[[], object]) -> Iterator[None]:
    """Stop the analysis processes, and continue them at the end of the block."""
    is_stopped = threading.Event()

    def predict_until_stopped() -> None:
        while not is_stopped.is_set():
            predict()  # an analysis needs new predictions

    traffic = threading.Thread(target=predict_until_stopped)
    traffic.start()
    try:
        stopped = wait_for(
            lambda: _analysis_pids(root), "an analysis of captured predictions", within_s=60
        )
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
    finally:
        is_stopped.set()
        traffic.join()
    try:
        yield
    finally:
        for pid in stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def _count_predictions(endpoints: Endpoints) -> int:
    """Return the number of predictions in the monitoring report."""
    report: dict[str, Any] = endpoints.call("GET", f"endpoints/{_WATCHED}/monitoring")
    return int(report["predictions"])


def _measure(
    endpoints: Endpoints,
    latencies: Callable[[float], list[float]],
    *,
    seconds: float,
    settle_seconds: float,
    rounds: int,
) -> tuple[list[float], list[float], int]:
    """Return latencies with and without analysis, and the number of analysed predictions."""
    monitored: list[float] = []
    alone: list[float] = []
    latencies(seconds)  # warm up, so that a cold start does not count
    before = _count_predictions(endpoints)
    for _ in range(rounds):
        with _without_analysis(endpoints.running.program.pid, partial(latencies, settle_seconds)):
            alone += latencies(seconds)
        latencies(settle_seconds)  # work off the backlog, unmeasured
        monitored += latencies(seconds)
    return monitored, alone, _count_predictions(endpoints) - before


def main() -> None:
    """Print a table, and with --json one line of JSON at the end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--rate", type=float, default=1_000.0, help="predictions a second")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--settle-seconds",
        type=float,
        default=15.0,
        help="traffic that starts an analysis, and that works off its backlog",
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, running_endpoints(Path(folder)) as endpoints:
        version = endpoints.register(2, width=_COLUMNS)
        endpoints.create(_WATCHED, version)
        endpoints.state(_WATCHED, "serving", within_s=_STARTS_WITHIN_S)
        port = endpoints.running.installation.gateway_port
        key = endpoints.keys[_WATCHED]
        with ProcessPoolExecutor(1, get_context("spawn")) as client:

            def latencies(seconds: float) -> list[float]:
                return client.submit(_latencies, port, key, arguments.rate, seconds).result()

            monitored, alone, analysed = _measure(
                endpoints,
                latencies,
                seconds=arguments.seconds,
                settle_seconds=arguments.settle_seconds,
                rounds=arguments.rounds,
            )
        endpoints.running.program.signal(signal.SIGTERM)
        endpoints.running.program.wait(60)
    cases = {}
    for name, share in (("p50", 50), ("p99", 99), ("p99.9", 99.9)):
        ours, peer = (float(np.percentile(values, share)) for values in (monitored, alone))
        print(
            f"{name}: {ours:.3f} ms with monitoring, {peer:.3f} ms without, ratio {ours / peer:.2f}"
        )
        cases[f"predictions {name} while watched"] = {
            "ours": round(ours, 3),
            "peer": round(peer, 3),
            "ratio": round(ours / peer, 3),
            "unit": "ms",
        }
    counts = f"{len(monitored)} and {len(alone)} predictions; {analysed} analysed"
    print(f"{os.cpu_count()} cores; {counts}")
    if arguments.json:
        print(json.dumps({"bench": "monitoring_live", "cases": cases}))


if __name__ == "__main__":
    main()
