"""A script that names inputs by MLflow's own calls, and prints what its runs keep of them.

With `elsewhere` it names them to another server as well.
"""

import json
import sys
import tempfile

import mlflow
import numpy as np
import pandas as pd
from mlflow.entities import DatasetInput, InputTag
from sklearn.linear_model import LinearRegression


def main() -> None:
    """Name a frame twice, an array by the client; fit a model."""
    frame = pd.DataFrame(
        {"age": range(40), "plan": ["a", None] * 20, "spent": [0.5, np.nan, 1.0, 2.0] * 10}
    )
    frame["churned"] = [0, 1] * 20
    with mlflow.start_run() as run:
        people = mlflow.data.from_pandas(frame, targets="churned", name="people")  # type: ignore[attr-defined]
        mlflow.log_input(people, context="training")
        mlflow.log_input(people, context="training")
        array = mlflow.data.from_numpy(np.arange(60.0).reshape(20, 3), targets=np.arange(20))  # type: ignore[attr-defined]
        tags = [InputTag("mlflow.data.context", "eval/late")]
        mlflow.MlflowClient().log_inputs(
            run.info.run_id, datasets=[DatasetInput(array._to_mlflow_entity(), tags)]
        )
    with mlflow.start_run() as fitted:
        mlflow.sklearn.autolog(log_models=False, silent=True)
        LinearRegression().fit(frame[["age"]], frame["churned"])
    if sys.argv[1:] == ["elsewhere"]:
        # Another server gets what it was told, and no rows.
        other = mlflow.MlflowClient(f"sqlite:///{tempfile.mkdtemp()}/other.db")
        there = other.create_run(other.create_experiment("theirs")).info.run_id
        other.log_inputs(there, datasets=[DatasetInput(people._to_mlflow_entity(), [])])
        assert other.list_artifacts(there, "slipway/data") == []
    kept = {}
    for info in (run.info, fitted.info):
        files = mlflow.artifacts.list_artifacts(run_id=info.run_id, artifact_path="slipway/data")
        for file in files:
            name = file.path.rpartition("/")[2].removesuffix(".json")
            kept[name] = mlflow.artifacts.load_dict(f"{info.artifact_uri}/{file.path}")
    print("told " + json.dumps(kept))  # noqa: T201


if __name__ == "__main__":
    main()
