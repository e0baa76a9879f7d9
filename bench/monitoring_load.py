"""Latency of predictions while the same machine computes heavy monitoring reports.

    .venv/bin/python bench/monitoring_load.py [--json] [--predictions 10000000] [--seconds 10]
        [--rounds 3] [--days 30]

Predictions go through a real gateway, sequentially on each of two connections. Alternately, nothing
else runs, the analysis process summarises a month repeatedly, or the portal serves two users who
request slices of a month repeatedly. The peer is the latency without that load.
"""

import argparse
import http.client
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "platform"), str(ROOT)]

from bench.needs import DEVELOPMENT, require  # noqa: E402  (the path comes first)

require([*DEVELOPMENT, "duckdb", "onnx"])

import httpx  # noqa: E402

from bench.monitoring import DAYS, fill, format_timestamp  # noqa: E402
from portal.monitoring.analyst import analyst  # noqa: E402
from slipway.schemas.serving import EndpointLimits  # noqa: E402
from tests.portals import RunningPortal, running_portal  # noqa: E402
from tests.workers.serving import KEY, plane  # noqa: E402

_CONNECTIONS, _USERS = 2, 2
_BODY = json.dumps({"inputs": [[1, 2, 3, 4]]}).encode()
_HEADERS = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}


def _predict(port: int, until: float, took_ms: list[float]) -> None:
    """Send predictions one after another until `until`, and append their latencies to `took_ms`."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    while time.monotonic() < until:
        started = time.perf_counter()
        connection.request("POST", "/v1/digits/predict", _BODY, _HEADERS)
        response = connection.getresponse()
        response.read()
        took_ms.append(1_000 * (time.perf_counter() - started))
        if response.status != 200:
            raise SystemExit(f"a prediction failed with status {response.status}")
    connection.close()


def _latencies(port: int, seconds: float) -> list[float]:
    results: list[list[float]] = [[] for _ in range(_CONNECTIONS)]
    until = time.monotonic() + seconds
    threads = [
        threading.Thread(target=_predict, args=(port, until, took_ms)) for took_ms in results
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [latency for took_ms in results for latency in took_ms]


@contextmanager
def _repeatedly(work: Callable[[], None]) -> Iterator[list[int]]:
    """Repeat `work` in a thread until the block ends. Yields a list with an item per repetition."""
    done: list[int] = []
    stopped = threading.Event()

    def repeat() -> None:
        while not stopped.is_set():
            work()
            done.append(len(done))

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield done
    finally:
        stopped.set()
        thread.join()


def _analysis(running: RunningPortal, stack: ExitStack) -> list[Callable[[], None]]:
    """Return the work of the control worker: summarise a month of predictions."""
    folder = running.installation.data_dir / "monitoring"
    paths = [str(path) for path in sorted(folder.glob("*/*/*.parquet"))]
    process = stack.enter_context(analyst())

    def summarise() -> None:
        process.request(
            "summarise", paths=paths, baselines={}, calibrations={}, labels=[], positive=None
        )

    return [summarise]


def _views(running: RunningPortal, stack: ExitStack) -> list[Callable[[], None]]:
    """Return the work of two users who request slices of a month."""
    since = format_timestamp(time.time() - 30 * 86_400)
    address = (
        f"/projects/watched/endpoints/bench/monitoring?since={since}"
        "&feature=f3&operator=%3E&value=0.5"
    )
    apis = [stack.enter_context(running.client("root")) for _ in range(_USERS)]
    return [partial(_view, api, address) for api in apis]


def _view(api: httpx.Client, address: str) -> None:
    api.get(address).raise_for_status()


def _percentile(values: list[float], share: float) -> float:
    return sorted(values)[max(0, round(share * len(values)) - 1)]


def _measure(running: RunningPortal, seconds: float, rounds: int) -> dict[str, list[float]]:
    """Return latencies of predictions alone, during analysis and during views, interleaved."""
    results: dict[str, list[float]] = {"alone": [], **{name: [] for name in _LOADS}}
    # The client of predictions is a separate process, because this one parses responses meanwhile.
    with plane() as served, ProcessPoolExecutor(1, get_context("spawn")) as client:
        replica = served.replica()
        served.start_gateway()
        served.serve(replica, limits=EndpointLimits())

        def latencies(duration_s: float) -> list[float]:
            return client.submit(_latencies, served.port, duration_s).result()

        latencies(2 * seconds)  # warm up, so that a cold start does not count
        for _ in range(rounds):
            results["alone"] += latencies(seconds)
            for name, works in _LOADS.items():
                with ExitStack() as stack:
                    done = [
                        stack.enter_context(_repeatedly(work)) for work in works(running, stack)
                    ]
                    results[name] += latencies(seconds)
                print(f"beside {name}: {sum(len(repetitions) for repetitions in done)} repetitions")
    return results


_LOADS: Final = {"the analysis": _analysis, "views of two people": _views}


def main() -> None:
    """Print a table, and with --json one line of JSON at the end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--predictions", type=int, default=10_000_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--days", type=int, default=DAYS, help="days with predictions")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, running_portal(Path(folder)) as running:
        fill(running, arguments.predictions, arguments.days)
        results = _measure(running, arguments.seconds, arguments.rounds)
    cases = {}
    for name in _LOADS:
        for label, share in (("p50", 0.5), ("p99", 0.99)):
            busy, quiet = (_percentile(results[kind], share) for kind in (name, "alone"))
            ratio = busy / quiet
            print(f"{label} beside {name}: {busy:.2f} ms, alone {quiet:.2f} ms, ratio {ratio:.2f}")
            cases[f"predictions {label} beside {name}"] = {
                "ours": round(busy, 3),
                "peer": round(quiet, 3),
                "ratio": round(ratio, 3),
                "unit": "ms",
            }
    counts = ", ".join(str(len(times)) for times in results.values())
    print(f"{os.cpu_count()} cores; {counts} predictions")
    if arguments.json:
        print(json.dumps({"bench": "monitoring_load", "cases": cases}))


if __name__ == "__main__":
    main()
