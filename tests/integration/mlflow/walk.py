"""What a person does with MLflow, with an unmodified client; run in a process of its own.

Reads MLFLOW_TRACKING_URI and MLFLOW_TRACKING_TOKEN, prints one line of JSON.
"""

import json
import tempfile
from pathlib import Path

import mlflow
from mlflow import MlflowClient
from mlflow.data.pandas_dataset import from_pandas
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression


def walk() -> dict[str, object]:
    """Log, autolog, keep files, trace, register, alias and load; return what came of it."""
    with mlflow.start_run() as plain:
        mlflow.log_metric("loss", float("inf"), step=1)
        mlflow.log_params({"lr": 0.1, "layers": 3})
    mlflow.set_experiment("iris")
    features, labels = load_iris(return_X_y=True, as_frame=True)
    mlflow.autolog(log_datasets=True, silent=True)
    with mlflow.start_run() as run:
        model = LogisticRegression(max_iter=200).fit(features, labels)
        mlflow.log_input(from_pandas(features.head(2), name="numbers"), context="eval")
        mlflow.log_text("hello", "notes/hello.txt")
        info = mlflow.sklearn.log_model(
            model, name="classifier", registered_model_name="iris", serialization_format="pickle"
        )
    client = MlflowClient()
    client.set_registered_model_alias("iris", "champion", "1")
    loaded = mlflow.pyfunc.load_model("models:/iris@champion")
    with tempfile.TemporaryDirectory() as folder:
        text = Path(
            mlflow.artifacts.download_artifacts(
                run_id=run.info.run_id, artifact_path="notes/hello.txt", dst_path=folder
            )
        ).read_text()

    @mlflow.trace
    def double(number: int) -> int:
        return number * 2

    double(4)
    mlflow.flush_trace_async_logging()
    logged = client.get_run(run.info.run_id)
    assert logged.inputs is not None
    assert logged.outputs is not None
    return {
        "plain": client.get_run(plain.info.run_id).data.metrics["loss"],
        "experiment": client.get_experiment(plain.info.experiment_id).name,
        "same": bool((loaded.predict(features) == model.predict(features)).all()),
        "text": text,
        "files": sorted(file.path for file in client.list_artifacts(run.info.run_id)),
        "params": logged.data.params.get("max_iter"),
        "metrics": len(logged.data.metrics),
        "datasets": sorted(dataset.dataset.name for dataset in logged.inputs.dataset_inputs),
        "outputs": info.model_id in [output.model_id for output in logged.outputs.model_outputs],
        "searched": [match.info.run_id for match in client.search_runs([run.info.experiment_id])]
        == [run.info.run_id],
        "versions": [v.version for v in client.search_model_versions("name = 'iris'")],
        "traces": len(mlflow.search_traces(return_type="list")),
    }


if __name__ == "__main__":
    print(json.dumps(walk()))  # noqa: T201
