"""From creating an endpoint to the first prediction, compared with `mlflow models serve`.

Both serve the same model. Slipway runs completely: an endpoint is created over the API, its replica
is queued, placed and started by the agent of the node, the model of 10 MB is fetched and verified,
golden predictions are compared, the gateways are notified, and a prediction returns through the
gateway. Cold is the first endpoint after the start of the platform. Warm is a later one, when the
node has a warm process with the packages of models imported.
"""

import json
import os
import signal
import statistics
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.integration.serving.living import Endpoints, running_endpoints
from tests.processes import free_ports, wait_for

MODEL_BYTES = 10 * 1024**2
WITHIN_S = 180.0
WARM_WITHIN_S = 120.0


def creation_cases(folder: Path, *, rounds: int) -> dict[str, dict[str, Any]]:
    """Return the medians of both sides, over interleaved rounds."""
    with running_endpoints(folder / "slipway") as endpoints:
        version = endpoints.register(2, golden=2, size_bytes=MODEL_BYTES)
        model = endpoints.write("peer", {"factor": 2, "refuses_above": None})
        (model / "weights.bin").write_bytes(b"\1" * MODEL_BYTES)
        cold = _create(endpoints, "cold", version)
        wait_for(lambda: _is_warm(endpoints), "warm process", within_s=WARM_WITHIN_S, every_s=0.5)
        warm, peer = [], []
        for number in range(rounds):
            warm.append(_create(endpoints, f"warm-{number}", version))
            endpoints.call("DELETE", f"endpoints/warm-{number}")
            peer.append(_time_mlflow_start(model, folder))
        endpoints.call("DELETE", "endpoints/cold")
        # Replicas survive a stop of the platform by design, so wait until these have ended.
        wait_for(lambda: _all_ended(endpoints), "end of all replicas", within_s=WITHIN_S)
    peer_s = statistics.median(peer)
    return {
        "create_to_first_prediction_vs_mlflow": _case(statistics.median(warm), peer_s),
        "create_to_first_prediction_cold_vs_mlflow": _case(cold, peer_s),
    }


def _case(ours: float, peer: float) -> dict[str, Any]:
    return {
        "ours": round(ours, 3),
        "peer": round(peer, 3),
        "ratio": round(ours / peer, 3),
        "unit": "s",
    }


def _create(endpoints: Endpoints, name: str, version: int) -> float:
    started = time.perf_counter()
    endpoints.create(name, version)
    endpoints.until(name, 2, within_s=WITHIN_S)
    return time.perf_counter() - started


def _all_ended(endpoints: Endpoints) -> bool:
    return all(
        workload["ended_at"] for workload in endpoints.call("GET", "workloads?limit=200")["items"]
    )


def _is_warm(endpoints: Endpoints) -> bool:
    """Return whether the agent has reported that the warm process of replicas is ready."""
    return "a serving process is warm" in endpoints.running.log()


def _time_mlflow_start(model: Path, folder: Path) -> float:
    """Return the seconds from starting MLflow's model server to its first prediction."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "mlflow", "models", "serve", "-m", str(model)]
    # MLflow starts `uvicorn` by its name. The program is beside the interpreter.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    log_file = folder / "mlflow-creation.log"
    with log_file.open("wb") as log:
        started = time.perf_counter()
        child = subprocess.Popen(
            [*command, "-p", str(port), "-h", "127.0.0.1", "--env-manager", "local"],
            stdout=log,
            stderr=log,
            start_new_session=True,
            env=os.environ | {"PATH": path},
        )
        try:
            wait_for(
                lambda: _is_ready(port, child, log_file), "response of MLflow", within_s=WITHIN_S
            )
            return time.perf_counter() - started
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait(10)


def _is_ready(port: int, child: subprocess.Popen[bytes], log: Path) -> bool:
    if child.poll() is not None:
        raise RuntimeError(f"MLflow ended with {child.returncode}: {log.read_text()[-2000:]}")
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/invocations",
        json.dumps({"inputs": [[1.0, 1.0]]}).encode(),
        {"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=5) as response:  # noqa: S310
            return bool(response.status == 200)
    except OSError:
        return False
