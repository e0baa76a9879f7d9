"""Resolves the source of a version that an MLflow client registers.

MLflow wants the run or the model of a source named beside it, and stores `runs:/…` as the place of
the files. Here the portal names them itself, and the files' own address is stored.
"""

from typing import Any

import orjson

from portal.api.mlflow.answers import invalid, unavailable
from portal.core.errors import InvalidInput, Unavailable
from portal.experiments.models import LoggedModel, ModelVersion, Run
from portal.registry.artifact_uri import folder_of, require_files, resolve_source

MAX_LOCATION = 500
_PROMPTS = ("dummy-source", "prompt-template")
_MODELS = "models"


def complete_source(project_id: str, content: dict[str, Any]) -> str:
    """Add the run or model of a source to a request. Returns where its files are.

    Returns nothing for a prompt. Raises Refusal for a source of another project.
    """
    source = content.get("source")
    if not isinstance(source, str) or source in _PROMPTS:
        return ""
    try:
        location, run_id = resolve_source(project_id, source)
        folder = folder_of(project_id, location)
    except InvalidInput as error:
        raise invalid(" ".join(filter(None, (error.message, error.next_step)))) from error
    if len(location) > MAX_LOCATION:
        raise invalid(f"The address of these files is longer than {MAX_LOCATION} characters.")
    try:
        require_files(project_id, source, location)
    except InvalidInput as error:
        raise invalid(f"{error.message} {error.next_step}") from error
    except Unavailable as error:
        raise unavailable(error.message) from error
    scheme = source.partition(":")[0]
    run = _run_of(project_id, folder)
    if not content.get("run_id") and scheme != _MODELS and (run_id or run):
        content["run_id"] = run_id or run
    if not content.get("model_id") and scheme != "runs":
        model = _model_of(project_id, source, folder)
        if model:
            content["model_id"] = model
    return location


def _run_of(project_id: str, folder: str) -> str:
    """Return the run whose artifacts contain a folder: workspaces/PROJECT/EXPERIMENT/RUN/…."""
    run_id = [*folder.split("/"), "", "", "", ""][3]
    runs = Run.objects.in_projects([project_id]).filter(run_uuid=run_id)
    return run_id if runs.exists() else ""


def _model_of(project_id: str, source: str, folder: str) -> str:
    """Return the logged model of a source: models:/m-…, or the URI of its files."""
    scheme, _, rest = source.partition(":")
    named = rest.lstrip("/") if scheme == _MODELS else [*folder.split("/"), "", "", "", "", ""][4]
    models = LoggedModel.objects.in_projects([project_id]).filter(model_id=named)
    return named if models.exists() else ""


def store_location(project_id: str, location: str, answered: bytes) -> None:
    """Store the location of the files in the version from MLflow's response."""
    try:
        made = orjson.loads(answered)["model_version"]
        name, version = str(made["name"]), int(made["version"])
    except (ValueError, KeyError, TypeError):
        return
    versions = ModelVersion.objects.filter(workspace=project_id, name=name, version=version)
    versions.filter(storage_location__startswith="runs:").update(storage_location=location)
