"""What heavy views of monitoring cost whoever predicts on the same machine at the same time.

    .venv/bin/python bench/monitoring_load.py [--json] [--predictions 10000000] [--seconds 10]
        [--rounds 3]

Predictions go through a real gateway, one after the other on each of two connections. In turns
nothing else happens, the process that analyses sums up a month over and over, or the portal answers
two people who ask for slices of a month over and over. The peer is the same latency without them.
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

import httpx

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "platform"), str(ROOT)]

from bench.monitoring import fill, format_timestamp  # noqa: E402  (the path comes first)
from portal.monitoring.analyst import analyst  # noqa: E402
from slipway.schemas.serving import EndpointLimits  # noqa: E402
from tests.portals import RunningPortal, running_portal  # noqa: E402
from tests.workers.serving import KEY, plane  # noqa: E402

_CONNECTIONS, _PEOPLE = 2, 2
_BODY = json.dumps({"inputs": [[1, 2, 3, 4]]}).encode()
_HEADERS = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}


def _predict(port: int, until: float, took_ms: list[float]) -> None:
    """Predict until a moment, each when the one before is answered."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    while time.monotonic() < until:
        began = time.perf_counter()
        connection.request("POST", "/v1/digits/predict", _BODY, _HEADERS)
        answer = connection.getresponse()
        answer.read()
        took_ms.append(1_000 * (time.perf_counter() - began))
        if answer.status != 200:
            raise SystemExit(f"a prediction was answered {answer.status}")
    connection.close()


def _latencies(port: int, seconds: float) -> list[float]:
    found: list[list[float]] = [[] for _ in range(_CONNECTIONS)]
    until = time.monotonic() + seconds
    threads = [threading.Thread(target=_predict, args=(port, until, mine)) for mine in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [one for mine in found for one in mine]


@contextmanager
def _over_and_over(work: Callable[[], None]) -> Iterator[list[int]]:
    """Do something in a thread until the block ends; the list grows each time it was done."""
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
    """Return what the control worker does: sum up a month of predictions."""
    folder = running.installation.data_dir / "monitoring"
    paths = [str(path) for path in sorted(folder.glob("*/*/*.parquet"))]
    asked = stack.enter_context(analyst())

    def sum_up() -> None:
        asked.ask("summarise", paths=paths, baselines={}, calibrations={}, labels=[], positive=None)

    return [sum_up]


def _views(running: RunningPortal, stack: ExitStack) -> list[Callable[[], None]]:
    """Return what two people do who ask for slices of a month."""
    since = format_timestamp(time.time() - 30 * 86_400)
    address = (
        f"/projects/watched/endpoints/bench/monitoring?since={since}"
        "&feature=f3&operator=%3E&value=0.5"
    )
    apis = [stack.enter_context(running.client("root")) for _ in range(_PEOPLE)]
    return [partial(_view, api, address) for api in apis]


def _view(api: httpx.Client, address: str) -> None:
    api.get(address).raise_for_status()


def _percentile(values: list[float], share: float) -> float:
    return sorted(values)[max(0, round(share * len(values)) - 1)]


def _measure(running: RunningPortal, seconds: float, rounds: int) -> dict[str, list[float]]:
    """Return milliseconds of predictions alone, beside analysis and beside views, in turns."""
    found: dict[str, list[float]] = {"alone": [], **{name: [] for name in _BESIDE}}
    # The client of predictions is a separate process, because this one parses responses meanwhile.
    with plane() as served, ProcessPoolExecutor(1, get_context("spawn")) as client:
        replica = served.replica()
        served.start_gateway()
        served.serve(replica, limits=EndpointLimits())

        def latencies(lasting: float) -> list[float]:
            return client.submit(_latencies, served.port, lasting).result()

        latencies(2 * seconds)  # warm up, so that a cold start does not count
        for _ in range(rounds):
            found["alone"] += latencies(seconds)
            for name, begin in _BESIDE.items():
                with ExitStack() as stack:
                    done = [
                        stack.enter_context(_over_and_over(work)) for work in begin(running, stack)
                    ]
                    found[name] += latencies(seconds)
                print(f"beside {name}: {sum(len(one) for one in done)} times done")
    return found


_BESIDE: Final = {"the analysis": _analysis, "views of two people": _views}


def main() -> None:
    """Print a table, and with --json one line of JSON at the end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--predictions", type=int, default=10_000_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, running_portal(Path(folder)) as running:
        fill(running, given.predictions)
        found = _measure(running, given.seconds, given.rounds)
    cases = {}
    for name in _BESIDE:
        for what, share in (("p50", 0.5), ("p99", 0.99)):
            busy, quiet = (_percentile(found[one], share) for one in (name, "alone"))
            ratio = busy / quiet
            print(f"{what} beside {name}: {busy:.2f} ms, alone {quiet:.2f} ms, ratio {ratio:.2f}")
            cases[f"predictions {what} beside {name}"] = {
                "ours": round(busy, 3),
                "peer": round(quiet, 3),
                "ratio": round(ratio, 3),
                "unit": "ms",
            }
    counts = ", ".join(str(len(one)) for one in found.values())
    print(f"{os.cpu_count()} cores; {counts} predictions")
    if given.json:
        print(json.dumps({"bench": "monitoring_load", "cases": cases}))


if __name__ == "__main__":
    main()
