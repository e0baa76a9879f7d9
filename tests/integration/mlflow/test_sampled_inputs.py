"""Samples of what a run names as its inputs by MLflow's own calls, kept by the SDK."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.processes import ROOT, clean_environment
from tests.tracking import TrackingPortal

pytestmark = pytest.mark.integration
_SCRIPT = Path(__file__).parent / "naming_inputs.py"
_IN_JOBS = ROOT / "workers/launcher/in_jobs"


def _named(
    tracking: TrackingPortal, *path: Path, to: tuple[str, ...] = (), **more: str
) -> tuple[dict[str, Any], str]:
    """Run the script at a desk; returns the samples by context, and what was told on stderr."""
    done = subprocess.run(
        [sys.executable, str(_SCRIPT), *to],
        env=clean_environment()
        | {
            "MLFLOW_TRACKING_URI": tracking.uri("alice"),
            "MLFLOW_TRACKING_TOKEN": tracking.portal.tokens["alice"],
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "GIT_PYTHON_REFRESH": "quiet",
            "PYTHONPATH": os.pathsep.join(map(str, (*path, ROOT / "platform"))),
        }
        | more,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    line = next(line for line in done.stdout.splitlines() if line.startswith("told "))
    return json.loads(line.removeprefix("told ")), done.stderr


@pytest.mark.thorough
def test_frames_arrays_and_what_autologging_names_are_sampled(tracking: TrackingPortal) -> None:
    kept, output = _named(tracking, _IN_JOBS, to=("elsewhere",))
    assert sorted(kept) == ["mlflow-eval-late", "mlflow-train", "mlflow-training"]
    people = kept["mlflow-training"]
    assert (people["rows"], people["columns"]) == (40, ["age", "plan", "spent"])
    assert people["inputs"][1] == {"age": 1, "plan": None, "spent": None}
    assert people["inputs"][2] == {"age": 2, "plan": "a", "spent": 1.0}
    assert people["truth"] == [0, 1] * 20
    late = kept["mlflow-eval-late"]
    assert late["inputs"][1] == [3.0, 4.0, 5.0]
    assert late["truth"][19] == 19
    assert kept["mlflow-train"]["columns"] == ["age"]
    assert "[slipway]" not in output


@pytest.mark.slow
def test_it_is_so_where_the_sdk_is_installed_and_the_server_is_ours(
    tracking: TrackingPortal, tmp_path: Path
) -> None:
    installed = tmp_path / "slipway-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: slipway\nVersion: 1\n")
    (installed / "entry_points.txt").write_text(
        "[mlflow.request_header_provider]\nslipway = slipway.mlflow_plugin:Inputs\n"
    )
    nobody: dict[str, Any] = {"SLIPWAY_CONFIG_DIR": str(tmp_path)}
    there, elsewhere = tracking.portal.url, "https://slipway.example.org"
    assert "mlflow-training" in _named(tracking, tmp_path, SLIPWAY_URL=there, **nobody)[0]
    assert _named(tracking, tmp_path, SLIPWAY_URL=elsewhere, **nobody)[0] == {}
    assert _named(tracking, _IN_JOBS, SLIPWAY_SAMPLE_INPUTS="0")[0] == {}
