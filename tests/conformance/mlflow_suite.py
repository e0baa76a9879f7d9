"""Run MLflow's own tests of its REST API against Slipway.

    git clone --depth 1 --branch v3.17.2 https://github.com/mlflow/mlflow ../mlflow
    .venv/bin/python -m tests.conformance.mlflow_suite ../mlflow [pytest's options]

Starts a portal with MLflow's server behind it in a folder of its own, then MLflow's tests in their
checkout. What does not apply is listed in excluded.toml with the reason, and expected to fail.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.tracking import tracking_portal

HERE = Path(__file__).resolve().parent
SUITES = ("tests/tracking/test_rest_tracking.py", "tests/tracking/test_model_registry.py")


def main() -> int:
    """Run it; returns pytest's exit status."""
    if len(sys.argv) < 2 or not (Path(sys.argv[1]) / SUITES[0]).is_file():
        sys.stderr.write(f"{__doc__}\n")
        return 2
    checkout, options = Path(sys.argv[1]), sys.argv[2:]
    with (
        tempfile.TemporaryDirectory(prefix="slipway-suite-") as folder,
        tracking_portal(Path(folder)) as tracking,
    ):
        return subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-p", "suite_of_mlflow", "-q", "-rfEX"),
                *("-o", "addopts=", "-p", "no:cacheprovider", "-k", "not file"),
                *(options or SUITES),
            ],
            cwd=checkout,
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
            | {
                "PYTHONPATH": f"{HERE}:{checkout}",
                "SLIPWAY_SUITE_URL": tracking.portal.url,
                "MLFLOW_TRACKING_TOKEN": tracking.portal.tokens["alice"],
                "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
            },
            check=False,
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
