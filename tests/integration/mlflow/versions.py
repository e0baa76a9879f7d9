"""Registers versions from every kind of source, with an unmodified client, and loads each.

Reads MLFLOW_TRACKING_URI and MLFLOW_TRACKING_TOKEN, and FOREIGN_SOURCES as JSON; prints one line of
JSON.
"""

import json
import os
import tempfile
from pathlib import Path

import mlflow
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression


def walk() -> dict[str, object]:
    """Return what came of each source, by its kind."""
    features, labels = load_iris(return_X_y=True, as_frame=True)
    model = LogisticRegression(max_iter=200).fit(features, labels)
    with mlflow.start_run() as run:
        info = mlflow.sklearn.log_model(model, name="classifier", serialization_format="pickle")
        with tempfile.TemporaryDirectory() as folder:
            mlflow.sklearn.save_model(
                model, str(Path(folder, "plain")), serialization_format="pickle"
            )
            mlflow.log_artifacts(folder, "models")
    client = MlflowClient()
    run_id = run.info.run_id
    client.create_registered_model("sources")
    sources = {
        "artifact": f"runs:/{run_id}/models/plain",
        "logged model": f"runs:/{run_id}/classifier",
        "model id": f"models:/{info.model_id}",
        "version": "models:/sources/1",
        "copy of a version": "models:/sources/4",
        "address": f"{run.info.artifact_uri}/models/plain",
    }
    loaded = {}
    for kind, source in sources.items():
        version = client.create_model_version("sources", source)
        loaded_model = mlflow.pyfunc.load_model(f"models:/sources/{version.version}")
        same = bool((loaded_model.predict(features) == model.predict(features)).all())
        loaded[kind] = [same, version.run_id == run_id]
    client.set_registered_model_alias("sources", "champion", "1")
    aliased = client.create_model_version("sources", "models:/sources@champion")
    refused = {}
    for source in [
        *json.loads(os.environ["FOREIGN_SOURCES"]),
        f"runs:/{run_id}",
        f"runs:/{run_id}/",
        f"runs:/{run_id}/../other",
        f"runs:/{run_id}/a%2fb",
        "runs:/00000000000000000000000000000000/model",
        "models:/nothing/1",
        "models:/m-00000000000000000000000000000000",
        "mlflow-artifacts:/workspaces/other/1/x/artifacts/model",
    ]:
        try:
            client.create_model_version("sources", source)
        except MlflowException as error:
            refused[source] = [error.error_code, str(error)]
        else:
            refused[source] = ["accepted", ""]
    return {"loaded": loaded, "aliased": aliased.version, "refused": refused}


if __name__ == "__main__":
    print(json.dumps(walk()))  # noqa: T201
