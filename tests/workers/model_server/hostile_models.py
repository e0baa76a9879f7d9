"""Models that look across the rows of a call, or remember calls: merging requests breaks them."""

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

with warnings.catch_warnings():
    # MLflow warns of its own types when it is imported.
    warnings.simplefilter("ignore")
    import mlflow.pyfunc
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, Schema, TensorSpec

_SCRIPT: Final = """
import time

import mlflow
import numpy as np
import pandas as pd
import torch

BEFORE = {"calls": 0}


def batch_norm(x):
    norm = torch.nn.BatchNorm1d(1)
    if len(x) == 1:
        return x * 0.0
    with torch.no_grad():
        return norm(torch.tensor(x).double().float().reshape(-1, 1)).numpy().ravel().astype(float)


def within_call(x):
    BEFORE["total"] = 0.0
    found = []
    for value in x:
        BEFORE["total"] += value
        found.append(BEFORE["total"])
    return np.array(found)


def counted(x):
    BEFORE["calls"] += 1
    return x * 0 + BEFORE["calls"]


def learning(x):
    BEFORE["largest"] = max(BEFORE.get("largest", 0.0), float(np.nanmax(np.abs(x))))
    return x / BEFORE["largest"]


KINDS = {
    "rowwise": lambda x: 2 * x + 1,
    "share": lambda x: x / x.sum(),
    "rank": lambda x: x.argsort().argsort() + 1.0,
    "mean": lambda x: x - x.mean(),
    "cumulative": lambda x: x.cumsum(),
    "scaled": lambda x: x / np.abs(x).max(),
    "imputed": lambda x: np.where(np.isnan(x), np.nanmean(x) if len(x) > 1 else 0.0, x),
    "first": lambda x: x - x[0],
    "position": lambda x: x + np.arange(len(x)),
    "count": lambda x: x * 0 + len(x),
    "seeded": lambda x: x + np.random.default_rng(7).random(len(x)),
    "neighbour": lambda x: x + np.roll(x, 1),
    "large_batches": lambda x: x + (len(x) > 40),
    "batch_norm": batch_norm,
    "global": within_call,
    "random": lambda x: x + np.random.default_rng().random(len(x)),
    "counted": counted,
    "learning": learning,
}


class Model(mlflow.pyfunc.PythonModel):
    def load_context(self, context):
        BEFORE.clear()
        BEFORE["calls"] = 0

    def predict(self, context, model_input, params=None):
        time.sleep(PAUSE_S)
        answers = np.zeros(len(model_input))
        for kind in model_input["kind"].unique():
            chosen = (model_input["kind"] == kind).to_numpy()
            answers[chosen] = KINDS[kind](model_input["x"].to_numpy(float)[chosen])
        return answers


mlflow.models.set_model(Model())
"""
# Each depends on the other rows of its call, and on nothing else.
CROSS_ROW: Final = (
    *("share", "rank", "mean", "cumulative", "scaled", "imputed", "first", "position", "count"),
    *("seeded", "neighbour", "batch_norm", "global", "large_batches"),
)
# Each answers the same rows differently from call to call.
CHANGING: Final = ("random", "counted", "learning")


def save_model(folder: Path, *, pause_s: float = 0.0, **more: Any) -> Path:
    """Save a model that does with the column `x` what the column `kind` names."""
    folder.mkdir(parents=True)
    script = folder / "script.py"
    script.write_text(_SCRIPT.replace("PAUSE_S", str(pause_s)))
    columns: list[ColSpec | TensorSpec] = [
        ColSpec(DataType.string, "kind"),
        ColSpec(DataType.double, "x", required=False),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mlflow.pyfunc.save_model(
            folder / "model",
            python_model=str(script),
            signature=ModelSignature(Schema(columns)),
            pip_requirements=["mlflow", "pandas"],
            **more,
        )
    return folder / "model"


def request(kind: str, values: Sequence[float | None]) -> dict[str, Any]:
    """Return a body of `/invocations` that asks a kind about these values."""
    data = [[kind, value] for value in values]
    return {"dataframe_split": {"columns": ["kind", "x"], "data": data}}


def body_of(kind: str, values: Sequence[float | None]) -> bytes:
    """Return the same as bytes."""
    return json.dumps(request(kind, values)).encode()
