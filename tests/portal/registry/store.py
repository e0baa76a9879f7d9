"""Runs with models for tests: rows in MLflow's tables and files where it keeps them."""

import json
import uuid
from collections.abc import Mapping
from pathlib import Path

from portal.experiments.models import (
    Experiment,
    Input,
    LatestMetric,
    LoggedDataset,
    LoggedModel,
    Run,
    Tag,
)

INPUTS = [{"name": "x", "type": "double", "required": True}]
OUTPUTS = [{"type": "tensor", "tensor-spec": {"dtype": "float64", "shape": [-1, 10]}}]
MLMODEL = f"""artifact_path: model
flavors:
  python_function: {{loader_module: mlflow.sklearn, model_path: model.pkl}}
  sklearn: {{pickled_model: model.pkl}}
saved_input_example_info:
  artifact_path: input_example.json
  serving_input_path: serving_input_example.json
signature:
  inputs: '{json.dumps(INPUTS)}'
  outputs: '{json.dumps(OUTPUTS)}'
  params: null
"""
FILES = {
    "MLmodel": MLMODEL.encode(),
    "model.pkl": b"\x80\x04not really",
    "serving_input_example.json": b'{"inputs": [[0.5]]}',
}


class Store:
    """The tracking side of one project: its runs, and the folder of all artifacts."""

    def __init__(self, root: Path, project_id: str) -> None:
        self.root = root
        self.project_id = project_id

    def run(
        self, *, files: Mapping[str, bytes] = FILES, workload: str = "", **metrics: float
    ) -> str:
        """Make a run with a model in its folder `model`; returns its id."""
        experiment, _ = Experiment.objects.get_or_create(
            name="digits", workspace=self.project_id, defaults={"lifecycle_stage": "active"}
        )
        run_id = uuid.uuid4().hex
        place = f"workspaces/{self.project_id}/{experiment.pk}/{run_id}/artifacts"
        run = Run.objects.create(
            run_uuid=run_id,
            name="quick-fox",
            experiment=experiment,
            status="FINISHED",
            lifecycle_stage="active",
            source_type="LOCAL",
            start_time=1,
            artifact_uri=f"mlflow-artifacts:/{place}",
        )
        for key, value in metrics.items():
            LatestMetric.objects.create(
                run=run, key=key, value=value, is_nan=False, step=1, timestamp=1
            )
        if workload:
            Tag.objects.create(run=run, key="slipway.job", value=workload)
        self.write(f"{place}/model", files)
        return run_id

    def logs(
        self, run_id: str, name: str, *, step: int = 0, files: Mapping[str, bytes] = FILES
    ) -> str:
        """Let a run log a model as MLflow 3 does; returns its id."""
        experiment = Run.objects.get(pk=run_id).experiment
        model_id = f"m-{uuid.uuid4().hex}"
        place = f"workspaces/{self.project_id}/{experiment.pk}/models/{model_id}/artifacts"
        LoggedModel.objects.create(
            model_id=model_id,
            experiment=experiment,
            name=name,
            artifact_location=f"mlflow-artifacts:/{place}",
            creation_timestamp_ms=1_790_000_000_000 + step,
            last_updated_timestamp_ms=1_790_000_000_000 + step,
            status=2,
            lifecycle_stage="active",
            source_run_id=run_id,
        )
        Input.objects.create(
            input_uuid=uuid.uuid4().hex,
            source_type="RUN_OUTPUT",
            source_id=run_id,
            destination_type="MODEL_OUTPUT",
            destination_id=model_id,
            step=step,
        )
        self.write(place, files)
        return model_id

    def write(self, folder: str, files: Mapping[str, bytes]) -> None:
        """Write the files of a model."""
        for name, content in files.items():
            path = self.root / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def reads(self, run_id: str, name: str, digest: str) -> None:
        """Let a run have read a data set."""
        run = Run.objects.get(pk=run_id)
        data = LoggedDataset.objects.create(
            dataset_uuid=uuid.uuid4().hex,
            experiment=run.experiment,
            name=name,
            digest=digest,
            dataset_source_type="slipway",
            dataset_source="{}",
        )
        Input.objects.create(
            input_uuid=uuid.uuid4().hex,
            source_type="DATASET",
            source_id=data.dataset_uuid,
            destination_type="RUN",
            destination_id=run_id,
            step=0,
        )
