"""A dataset that is read is an input of the active MLflow run, even if MLflow starts later."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow import MlflowClient

import slipway
from tests.processes import ROOT, clean_environment
from tests.tracking import TrackingPortal

pytestmark = pytest.mark.integration
_WORKER = """
import time
from portal.datasets.version_checks import check_waiting
while True:
    check_waiting()
    time.sleep(0.05)
"""
_TRAINING = """
import sys
import mlflow
import slipway

with mlflow.start_run() as run:
    print(run.info.run_id, flush=True)
    sys.stdin.readline()
    data = slipway.dataset("digits:1")
    print(data.arrow().num_rows, flush=True)
    sys.stdin.readline()
print("trained", flush=True)
"""


@pytest.fixture
def alice(tracking: TrackingPortal) -> Iterator[slipway.Client]:
    """Alice, in a project whose versions are checked."""
    worker = tracking.portal.installation.start("manage.py", "shell", "--no-imports", "-c", _WORKER)
    with slipway.Client(tracking.portal.url, token=tracking.portal.tokens["alice"]) as client:
        yield client
    worker.signal(signal.SIGKILL)
    worker.wait()


@pytest.mark.thorough
def test_what_a_run_reads_is_its_input_though_mlflow_was_away_when_it_was_read(
    tracking: TrackingPortal,
    alice: slipway.Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    project = tracking.projects["alice"]
    (tmp_path / "digits.csv").write_text("x,label\n1,2\n3,4\n")
    pushed = alice.datasets.push("digits", tmp_path / "digits.csv", project=project)
    token = tracking.portal.tokens["alice"]
    reached = {"MLFLOW_TRACKING_URI": tracking.uri("alice"), "MLFLOW_TRACKING_TOKEN": token}
    training = subprocess.Popen(
        [sys.executable, "-c", _TRAINING],
        env=clean_environment()
        | reached
        | {
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "GIT_PYTHON_REFRESH": "quiet",
            "PYTHONPATH": str(ROOT / "platform"),
            "SLIPWAY_URL": tracking.portal.url,
            "SLIPWAY_TOKEN": token,
            "SLIPWAY_PROJECT": project,
            "SLIPWAY_CACHE": str(tmp_path / "cache"),
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert training.stdin is not None
    assert training.stdout is not None
    with training:
        run_id = training.stdout.readline().strip()
        tracking.server.signal(signal.SIGKILL)
        tracking.server.wait()
        training.stdin.write("read\n")
        training.stdin.flush()
        assert training.stdout.readline() == "2\n", "it reads while MLflow is away"
        tracking.server = tracking.start_server()
        training.stdin.write("end\n")
        training.stdin.close()
        assert "trained\n" in training.stdout
        assert training.wait(timeout=60) == 0
    for name, value in reached.items():
        monkeypatch.setenv(name, value)
    client = MlflowClient(tracking.uri("alice"))
    inputs = client.get_run(run_id).inputs
    assert inputs is not None
    (dataset_input,) = inputs.dataset_inputs
    assert (dataset_input.dataset.name, dataset_input.dataset.source_type) == ("digits", "slipway")
    assert pushed.digest is not None
    assert dataset_input.dataset.digest == pushed.digest[:36]
    assert f"slipway:{project}/digits:1" in dataset_input.dataset.source
    (use,) = alice.datasets.uses("digits", 1, project=project)
    assert (use.run, use.job) == (run_id, None)
