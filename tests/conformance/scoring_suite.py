"""Run MLflow's own tests of its scoring server against a replica behind a gateway of Slipway.

    git clone --depth 1 --branch v3.17.2 https://github.com/mlflow/mlflow ../mlflow
    PYTHONPATH=platform .venv/bin/python -m tests.conformance.scoring_suite ../mlflow [options]

MLflow's tests score a model in their own process; `scoring_of_mlflow` lets the gateway answer
instead. What does not apply is listed in excluded_scoring.toml with the reason.
"""

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any

from tests.workers.serving import KEY, Plane, Replica, plane

HERE = Path(__file__).resolve().parent
SUITE = "tests/pyfunc/test_scoring_server.py"


class Stage:
    """Serves one model at a time, the one that was asked for last."""

    def __init__(self, dataplane: Plane) -> None:
        self._plane = dataplane
        self._numbers = count(1)
        self._model = ""
        self._replica: Replica | None = None

    def serve(self, model: str) -> None:
        """Have the gateway serve the model in a folder; raises AssertionError if it cannot."""
        if model == self._model:
            return
        before, name = self._replica, f"rep-{next(self._numbers)}"
        changes: dict[str, Any] = {
            "model_dir": model,
            "format": "mlflow",
            "entry": None,
            "revision_id": name,
        }
        self._replica = self._plane.replica(name, **changes)
        self._plane.serve(self._replica)
        self._model = model
        if before is not None:
            before.process.stop()


class _Stagehand(BaseHTTPRequestHandler):
    stage: Stage

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""

    def do_POST(self) -> None:
        model = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["model"]
        try:
            self.stage.serve(model)
            status, content = 200, b""
        except AssertionError as error:
            status, content = 500, str(error).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def main() -> int:
    """Run it; returns pytest's exit status."""
    if len(sys.argv) < 2 or not (Path(sys.argv[1]) / SUITE).is_file():
        sys.stderr.write(f"{__doc__}\n")
        return 2
    checkout, options = Path(sys.argv[1]).resolve(), sys.argv[2:]
    with plane() as dataplane:
        dataplane.start_gateway()
        handler = type("Handler", (_Stagehand,), {"stage": Stage(dataplane)})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            return _tests(checkout, options, dataplane.port, server.server_address[1])
        finally:
            server.shutdown()
            server.server_close()


def _tests(checkout: Path, options: list[str], gateway: int, stage: int) -> int:
    return subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "scoring_of_mlflow", "-q", "-rfEX"),
            *("-o", "addopts=", "-p", "no:cacheprovider", SUITE, *options),
        ],
        cwd=checkout,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        | {
            "PYTHONPATH": f"{HERE}{os.pathsep}{checkout}",
            "SLIPWAY_SUITE_GATEWAY": f"http://127.0.0.1:{gateway}",
            "SLIPWAY_SUITE_STAGE": f"http://127.0.0.1:{stage}",
            "SLIPWAY_SUITE_KEY": KEY,
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "CI": "false",  # there it would install a wheel of its own
        },
        check=False,
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
