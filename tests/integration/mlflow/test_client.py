"""An unmodified MLflow client, told where Slipway is and nothing else."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import clean_environment
from tests.tracking import TrackingPortal

pytestmark = pytest.mark.integration
_WALK = Path(__file__).parent / "walk.py"


def test_an_unmodified_client_logs_registers_and_loads(tracking: TrackingPortal) -> None:
    done = subprocess.run(
        [sys.executable, str(_WALK)],
        env=clean_environment()
        | {
            "MLFLOW_TRACKING_URI": tracking.uri("alice"),
            "MLFLOW_TRACKING_TOKEN": tracking.portal.tokens["alice"],
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
            "GIT_PYTHON_REFRESH": "quiet",
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert result.pop("metrics") >= 5
    assert result.pop("plain") == math.inf
    assert "notes" in result.pop("files")
    assert result == {
        "experiment": "Default",
        "same": True,
        "text": "hello",
        "params": "200",
        "datasets": ["dataset", "numbers"],
        "outputs": True,
        "searched": True,
        "versions": ["1"],
        "traces": 1,
    }
