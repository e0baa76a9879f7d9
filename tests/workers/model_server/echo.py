"""A model that answers with what it was given, as text."""

import warnings
from pathlib import Path
from typing import Final

with warnings.catch_warnings():
    # MLflow warns of its own types when it is imported.
    warnings.simplefilter("ignore")
    import mlflow.pyfunc
    from mlflow.models import ModelSignature
    from mlflow.types import DataType, ParamSchema, ParamSpec, Schema

_SCRIPT: Final = """
import json
import mlflow
import pandas as pd


def written(value):
    if value is None or value is pd.NA or value is pd.NaT:
        return None
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, pd.Timestamp):
        return value.isoformat()
    return value.item() if hasattr(value, "item") else value


class Model(mlflow.pyfunc.PythonModel):
    def predict(self, context, model_input, params=None):
        if isinstance(model_input, pd.DataFrame):
            rows = [
                {name: written(model_input[name].iloc[at]) for name in model_input.columns}
                for at in range(len(model_input))
            ]
        else:
            rows = [[written(part) for part in row] for row in model_input]
        return [json.dumps([row, params]) for row in rows]


mlflow.models.set_model(Model())
"""
_PARAMS: Final = ParamSchema(
    [
        ParamSpec("horizon", DataType.integer, 3),
        ParamSpec("at", DataType.double, 0.5),
        ParamSpec("steps", DataType.long, [1], (-1,)),
    ]
)


def save_echo(folder: Path, schema: Schema) -> Path:
    """Save it with a signature; returns its folder."""
    (folder / "script.py").write_text(_SCRIPT)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mlflow.pyfunc.save_model(
            folder / "model",
            python_model=str(folder / "script.py"),
            signature=ModelSignature(schema, params=_PARAMS),
            pip_requirements=["mlflow", "pandas"],
        )
    return folder / "model"
