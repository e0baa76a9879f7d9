"""Classifiers of real digits, logged by an unmodified MLflow client, and digits that drift."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from tests.portals import RunningPortal
from tests.processes import ROOT, clean_environment

Table = NDArray[np.float64]
# A linear classifier as MLflow loads one: its loader is code that came with it.
_MLMODEL = """flavors:
  python_function:
    code: code
    data: weights.json
    loader_module: linear_digits
model_uuid: 0123456789abcdef0123456789abcdef
signature:
  inputs: '[{"type": "tensor", "tensor-spec": {"dtype": "float64", "shape": [-1, 64]}}]'
  outputs: '[{"type": "tensor", "tensor-spec": {"dtype": "float64", "shape": [-1, 10]}}]'
  params: null
"""
_LOADER = """
import json
import numpy as np
class Model:
    def __init__(self, facts):
        self.weights, self.bias = np.array(facts["weights"]), np.array(facts["bias"])
    def predict(self, inputs, params=None):
        scores = np.asarray(inputs) @ self.weights.T + self.bias
        odds = np.exp(scores - scores.max(axis=1, keepdims=True))
        return odds / odds.sum(axis=1, keepdims=True)
def _load_pyfunc(path):
    with open(path) as file:
        return Model(json.load(file))
"""
# Logs a run for each folder, with an unmodified MLflow client.
_TRAINING = """
import sys
import mlflow
import numpy as np
import slipway

for folder in sys.argv[1:]:
    known = np.load(f"{folder}/known.npz")
    with mlflow.start_run(run_name=f"C-{known['c']}") as run:
        mlflow.log_param("C", known["c"])
        mlflow.log_metric("accuracy", known["accuracy"])
        slipway.track.data(
            known["images"], predictions=known["predictions"], truth=known["labels"]
        )
        mlflow.log_artifacts(f"{folder}/model", "model")
        print("run", run.info.run_id, flush=True)
"""


@dataclass(frozen=True)
class Digits:
    """Digits nobody trained on, as they are and as a careless camera sends them."""

    images: Table
    corrupted: Table
    labels: list[int]


def _split() -> tuple[Table, Table, Sequence[int], Sequence[int]]:
    images, labels = load_digits(return_X_y=True)
    parts: Any = train_test_split(
        images / 16, labels, test_size=0.5, random_state=0, stratify=labels
    )
    return tuple(parts)


def _corrupted(images: Table) -> Table:
    random = np.random.default_rng(0)
    turned = [
        ndimage.rotate(image.reshape(8, 8), 45, reshape=False, order=1).ravel() for image in images
    ]
    noise: Table = random.normal(0, 0.1, size=images.shape)
    return np.clip(np.array(turned) + noise, 0, 1)


def train(
    running: RunningPortal,
    project: str,
    folder: Path,
    *,
    person: str = "alice",
    regularizations: Sequence[float] = (0.1,),
) -> tuple[list[str], Digits]:
    """Train on half of the digits and log a run for each value of the parameter C.

    Returns the ids of the runs, which are called C-0.1 and so on, and digits that are new.
    `folder` is empty.
    """
    first, rest, first_labels, rest_labels = _split()
    known, new, known_labels, new_labels = train_test_split(
        rest, rest_labels, test_size=0.5, random_state=0, stratify=rest_labels
    )
    folders = [folder / str(regularization) for regularization in regularizations]
    for regularization, own in zip(regularizations, folders, strict=True):
        fitted = LogisticRegression(C=regularization, max_iter=500).fit(first, first_labels)
        _write_model(own / "model", fitted)
        np.savez(
            own / "known.npz",
            images=known,
            labels=known_labels,
            predictions=fitted.predict_proba(known),
            c=regularization,
            accuracy=fitted.score(known, known_labels),
        )
    environ = clean_environment() | {
        "PYTHONPATH": str(ROOT / "platform"),
        "MLFLOW_TRACKING_URI": f"{running.url}/mlflow/{project}",
        "MLFLOW_TRACKING_TOKEN": running.tokens[person],
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "GIT_PYTHON_REFRESH": "quiet",
    }
    done = subprocess.run(
        [sys.executable, "-c", _TRAINING, *folders],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("run ")]
    digits = Digits(new, _corrupted(new), [int(label) for label in new_labels])
    return [line.split()[1] for line in lines], digits


def _write_model(folder: Path, fitted: LogisticRegression) -> None:
    weights = {"weights": fitted.coef_.tolist(), "bias": fitted.intercept_.tolist()}
    for name, text in (
        ("MLmodel", _MLMODEL),
        ("code/linear_digits.py", _LOADER),
        ("weights.json", json.dumps(weights)),
        ("requirements.txt", ""),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
