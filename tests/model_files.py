"""Files of a model for tests that register a version without logging a model first."""

from pathlib import Path

SOURCE = "mlflow-artifacts:/1/model"


def write_model(artifacts: Path, project_id: str) -> None:
    """Write what `SOURCE` names in a project; `artifacts` is where the installation keeps them."""
    folder = artifacts / "workspaces" / project_id / "1" / "model"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "MLmodel").write_text("flavors: {}\n")
