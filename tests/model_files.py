"""Files of a model for tests that register a version without logging a model first."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from django.conf import settings

SOURCE = "mlflow-artifacts:/1/model"


def artifacts_folder() -> Path:
    """Return where artifacts are by the settings of this process."""
    return Path(unquote(urlsplit(settings.SLIPWAY_ARTIFACTS_URL).path))


def write_model(artifacts: Path, project_id: str) -> None:
    """Write what `SOURCE` names in a project; `artifacts` is where the installation keeps them."""
    folder = artifacts / "workspaces" / project_id / "1" / "model"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "MLmodel").write_text("flavors: {}\n")
