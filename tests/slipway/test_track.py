"""`slipway.track`: what a run ran with, logged by MLflow's own calls to any store."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from slipway import SlipwayError, track

SCRIPT = """
import json, sys
import mlflow
import slipway

mlflow.set_tracking_uri(sys.argv[1])
with mlflow.start_run() as run:
    slipway.track.environment(".")
    digest = slipway.track.data("train.csv", context="training")
    assert slipway.track.cost() is None
found = mlflow.get_run(run.info.run_id)
print("told " + json.dumps({
    "tags": found.data.tags,
    "inputs": [[it.dataset.name, it.dataset.digest, it.tags[0].value]
               for it in found.inputs.dataset_inputs],
    "diff": mlflow.artifacts.load_text(found.info.artifact_uri + "/slipway/uncommitted.diff"),
    "packages": mlflow.artifacts.load_text(found.info.artifact_uri + "/slipway/packages.txt"),
    "digest": digest,
}))
"""


def git(folder: Path, *arguments: str) -> None:
    """Run git as somebody."""
    who = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org")
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.mark.thorough
def test_code_packages_hardware_and_data_are_logged(tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.csv").write_text("a,b\n1,2\n")
    (code / "train.py").write_text("lr = 0.1\n")
    git(code, "init", "-q", "-b", "main")
    git(code, "add", ".")
    git(code, "commit", "-qm", "first")
    (code / "train.py").write_text("lr = 0.2\n")
    platform_folder = Path(__file__).resolve().parents[2] / "platform"
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, f"sqlite:///{tmp_path / 'runs.db'}"],
        cwd=code,
        env={
            "PATH": "/usr/bin:/bin",
            "HOME": str(tmp_path),
            "PYTHONPATH": str(platform_folder),
            "MLFLOW_DISABLE_TELEMETRY": "true",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("told "))
    logged = json.loads(line.removeprefix("told "))
    assert len(logged["tags"]["mlflow.source.git.commit"]) == 40
    assert logged["tags"]["mlflow.source.git.branch"] == "main"
    assert logged["tags"]["slipway.git.dirty"] == "true"
    assert int(logged["tags"]["slipway.cpus"]) >= 1
    assert "+lr = 0.2" in logged["diff"]
    assert "mlflow==" in logged["packages"]
    assert logged["inputs"] == [["train.csv", logged["digest"][:36], "training"]]


def test_without_mlflow_it_says_how_to_come_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(SlipwayError) as refused:
        track.environment()
    assert refused.value.next_step == "Install it: pip install mlflow-skinny"
