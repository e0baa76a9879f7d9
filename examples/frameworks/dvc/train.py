import json
import subprocess
from pathlib import Path

import mlflow
import yaml

subprocess.run(["dvc", "init", "--no-scm", "--force", "--quiet"], check=True)
subprocess.run(["dvc", "repro"], check=True)

with mlflow.start_run():
    mlflow.log_params(yaml.safe_load(Path("params.yaml").read_text()))
    mlflow.log_metrics(json.loads(Path("metrics.json").read_text()))
    mlflow.log_artifact("dvc.lock")
