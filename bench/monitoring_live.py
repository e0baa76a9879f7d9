"""What watching costs predictions as it really happens: a pass every ten seconds over what is new.

    .venv/bin/python bench/monitoring_live.py [--json] [--rate 1000] [--seconds 30] [--rounds 3]

A whole Slipway serves a model of 50 columns, and predictions come at a steady rate on two
connections. In turns the process that looks at all that was captured is held (the peer) and goes
on; what gathered meanwhile is worked off before anything is measured. All else of Slipway runs in
both. For the heaviest case, a month summed up over and over, see `monitoring_load.py`.
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

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "platform"), str(ROOT)]

from tests.integration.serving.living import Endpoints, running_endpoints  # noqa: E402
from tests.processes import command_of, wait_for  # noqa: E402

_CONNECTIONS, _COLUMNS = 2, 50
_STARTS_WITHIN_S = 120.0
_WATCHED = "watched"


def _predict(port: int, key: str, every_s: float, until: float, took_ms: list[float]) -> None:
    """Predict at a steady rate until a moment, in milliseconds from when each was due."""
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    rows = np.random.default_rng(0).normal(size=(256, 1, _COLUMNS)).round(4).tolist()
    bodies = [json.dumps({"inputs": row}).encode() for row in rows]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    due, number = time.monotonic() + every_s, 0
    while due < until:
        time.sleep(max(0.0, due - time.monotonic()))
        began = time.monotonic()
        connection.request("POST", f"/v1/{_WATCHED}/predict", bodies[number % 256], headers)
        answer = connection.getresponse()
        answer.read()
        took_ms.append(1_000 * (time.monotonic() - began))
        if answer.status != 200:
            raise SystemExit(f"a prediction was answered {answer.status}")
        due, number = due + every_s, number + 1
    connection.close()


def _latencies(port: int, key: str, rate: float, seconds: float) -> list[float]:
    found: list[list[float]] = [[] for _ in range(_CONNECTIONS)]
    until = time.monotonic() + seconds
    every_s = _CONNECTIONS / rate
    threads = [
        threading.Thread(target=_predict, args=(port, key, every_s, until, mine)) for mine in found
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [one for mine in found for one in mine]


def _analysts() -> list[int]:
    """Return the processes that analyse now."""
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return [pid for pid in pids if " portal.monitoring.analysis " in command_of(pid)]


@contextmanager
def _without_analysis(predict: Callable[[], object]) -> Iterator[None]:
    """Hold the process that analyses, whose pass waits meanwhile, until the block ends."""
    meanwhile = threading.Thread(target=predict)  # a pass needs new predictions
    meanwhile.start()
    held = wait_for(_analysts, "pass over what was captured", within_s=60)
    for pid in held:
        os.kill(pid, signal.SIGSTOP)
    meanwhile.join()
    try:
        yield
    finally:
        for pid in held:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def _count_predictions(endpoints: Endpoints) -> int:
    """Return how many predictions the monitoring has summed up."""
    found: dict[str, Any] = endpoints.call("GET", f"endpoints/{_WATCHED}/monitoring")
    return int(found["predictions"])


def _measure(
    endpoints: Endpoints, latencies: Callable[[float], list[float]], seconds: float, rounds: int
) -> tuple[list[float], list[float], int]:
    """Return milliseconds with and without analysis in turns, and how many were analysed."""
    beside: list[float] = []
    alone: list[float] = []
    latencies(seconds)  # warm up, so that a cold start does not count
    before = _count_predictions(endpoints)
    for _ in range(rounds):
        with _without_analysis(partial(latencies, 15.0)):
            alone += latencies(seconds)
        latencies(15.0)  # work off the backlog, unmeasured
        beside += latencies(seconds)
    return beside, alone, _count_predictions(endpoints) - before


def main() -> None:
    """Print a table, and with --json one line of JSON at the end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--rate", type=float, default=1_000.0, help="predictions a second")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, running_endpoints(Path(folder)) as endpoints:
        version = endpoints.register(2, width=_COLUMNS)
        endpoints.create(_WATCHED, version)
        endpoints.state(_WATCHED, "serving", within_s=_STARTS_WITHIN_S)
        port = endpoints.running.installation.gateway_port
        key = endpoints.keys[_WATCHED]
        with ProcessPoolExecutor(1, get_context("spawn")) as client:

            def latencies(lasting: float) -> list[float]:
                return client.submit(_latencies, port, key, given.rate, lasting).result()

            beside, alone, analysed = _measure(endpoints, latencies, given.seconds, given.rounds)
        endpoints.running.program.signal(signal.SIGTERM)
        endpoints.running.program.wait(60)
    cases = {}
    for name, share in (("p50", 50), ("p99", 99), ("p99.9", 99.9)):
        ours, peer = (float(np.percentile(one, share)) for one in (beside, alone))
        print(f"{name}: {ours:.3f} ms watched, {peer:.3f} ms not, ratio {ours / peer:.2f}")
        cases[f"predictions {name} while watched"] = {
            "ours": round(ours, 3),
            "peer": round(peer, 3),
            "ratio": round(ours / peer, 3),
            "unit": "ms",
        }
    print(
        f"{os.cpu_count()} cores; {len(beside)} and {len(alone)} predictions; {analysed} analysed"
    )
    if given.json:
        print(json.dumps({"bench": "monitoring_live", "cases": cases}))


if __name__ == "__main__":
    main()
