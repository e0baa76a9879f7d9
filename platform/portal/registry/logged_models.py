"""Models that a run logged, before anybody registers one. Their files are read, never loaded."""

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from portal.core.errors import InvalidInput
from portal.experiments.models import Input, LoggedModel, ModelVersion, Run, Tag
from portal.registry.adapters.artifacts import artifact_files
from portal.registry.artifact_uri import folder_of
from portal.registry.catalog import DELETED, versions_from_runs, versions_of_runs
from portal.registry.mlmodel import MAX_BYTES, BadModelFile, Description, read_mlmodel
from portal.registry.model_inspection import MAX_FILES
from portal.registry.ports import FilesUnreadable
from slipway.schemas.names import path_error

MOST_MODELS = 50
# Flavours that every model has say nothing about it.
_COMMON_FLAVORS = ("python_function",)
_READY = 2
_STATES = {1: "uploading", 3: "upload failed"}
# MLflow before 3 describes the models of a run in this tag, as a JSON list.
_HISTORY = "mlflow.log-model.history"
_MOST_CACHED = 512


@dataclass(frozen=True)
class LoggedModelFacts:
    """A model that a run logged. `source` registers it, `location` has its files.

    `signature` is shaped as `SignatureOut`, None without one. `state` is empty for a complete
    model, `fault` for one whose files were read. `versions` are (model, number).
    """

    source: str
    location: str
    name: str
    run_id: str
    step: int | None
    created_ms: int | None
    state: str = ""
    flavors: Sequence[str] = ()
    signature: dict[str, Any] | None = None
    size_bytes: int | None = None
    fault: str = ""
    versions: Sequence[tuple[str, int]] = ()

    @property
    def label(self) -> str:
        """Name the model so that models of the same name differ."""
        step = "" if self.step is None else f"step {self.step}"
        return " · ".join(filter(None, (self.name, ", ".join(self.flavors), step, self.state)))


def logged_models_of(project_id: str, run_id: str) -> list[LoggedModelFacts]:
    """Return the newest models of a run of the project, newest first, `MOST_MODELS` at most."""
    rows = LoggedModel.objects.in_projects([project_id]).filter(source_run_id=run_id)
    newest = list(
        rows.exclude(lifecycle_stage="deleted").order_by("-creation_timestamp_ms", "-model_id")[
            :MOST_MODELS
        ]
    )
    steps = dict(
        Input.objects.filter(
            source_type="RUN_OUTPUT",
            source_id=run_id,
            destination_type="MODEL_OUTPUT",
            destination_id__in=[row.model_id for row in newest],
        ).values_list("destination_id", "step")
    )
    models = [_facts_of(project_id, run_id, row, steps.get(row.model_id)) for row in newest]
    named = {row.name for row in newest}
    older = [model for model in _models_before_3(project_id, run_id) if model.name not in named]
    return _with_versions(project_id, run_id, [*models, *older][:MOST_MODELS])


def _facts_of(project_id: str, run_id: str, row: LoggedModel, step: int | None) -> LoggedModelFacts:
    model = LoggedModelFacts(
        source=f"models:/{row.model_id}",
        location=row.artifact_location,
        name=row.name,
        run_id=run_id,
        step=step,
        created_ms=row.creation_timestamp_ms,
        state=_STATES.get(row.status, ""),
    )
    if row.status != _READY:
        return model
    try:
        folder = folder_of(project_id, row.artifact_location)
        described, size_bytes = _read_files(folder, row.last_updated_timestamp_ms)
    except InvalidInput:
        return replace(model, fault="its files are outside this project")
    except (FilesUnreadable, BadModelFile) as error:
        return replace(model, fault=str(error))
    return replace(
        model,
        flavors=_telling(described.flavors),
        signature=described.signature,
        size_bytes=size_bytes,
    )


# A complete model does not change; what changes it changes the time too.
@lru_cache(maxsize=_MOST_CACHED)
def _read_files(folder: str, _changed_ms: int) -> tuple[Description, int]:
    """Return the content of a model's MLmodel file and the bytes of all its files."""
    store = artifact_files()
    files = store.files(folder, limit=MAX_FILES)
    described = Description()
    if any(file.path == "MLmodel" for file in files):
        described = read_mlmodel(store.head(folder, "MLmodel", limit_bytes=MAX_BYTES + 1))
    elif not files:
        raise FilesUnreadable("it has no files")
    return described, sum(file.size_bytes for file in files)


def _telling(flavors: Sequence[str]) -> list[str]:
    return [name for name in flavors if name not in _COMMON_FLAVORS] or list(flavors)


def _models_before_3(project_id: str, run_id: str) -> list[LoggedModelFacts]:
    """Return the models that an MLflow client before 3 logged, from a tag that anybody can set."""
    tags = Tag.objects.filter(run=run_id, run__experiment__workspace=project_id, key=_HISTORY)
    tag = tags.select_related("run").first()
    try:
        described = json.loads(tag.value or "") if tag else []
    except (ValueError, RecursionError):
        return []
    if tag is None or not isinstance(described, list):
        return []
    root = (tag.run.artifact_uri or "").rstrip("/")
    models: dict[str, LoggedModelFacts] = {}
    for item in described[-MOST_MODELS:]:
        path = item.get("artifact_path") if isinstance(item, dict) else None
        if not isinstance(path, str) or path_error(path) is not None:
            continue
        flavors, size = item.get("flavors"), item.get("model_size_bytes")
        models[path] = LoggedModelFacts(
            source=f"runs:/{run_id}/{path}",
            location=f"{root}/{path}",
            name=path,
            run_id=run_id,
            step=None,
            created_ms=None,
            flavors=_telling([str(name)[:100] for name in flavors][:20])
            if isinstance(flavors, dict)
            else (),
            size_bytes=size if type(size) is int and size >= 0 else None,
        )
    return list(reversed(models.values()))


def _with_versions(
    project_id: str, run_id: str, models: Sequence[LoggedModelFacts]
) -> list[LoggedModelFacts]:
    """Add the registered versions, recognized by the location of their files."""
    versions: dict[str, list[tuple[str, int]]] = defaultdict(list)
    rows = ModelVersion.objects.filter(workspace=project_id, run_id=run_id)
    for row in rows.exclude(current_stage=DELETED).order_by("name", "version"):
        versions[row.storage_location or row.source or ""].append((row.name, row.version))
    return [replace(model, versions=versions[model.location]) for model in models]


def suggested_name(project_id: str, run_id: str, logged: Sequence[LoggedModelFacts]) -> str:
    """Return the registered model that runs of this experiment became last, else a name for one."""
    run = Run.objects.in_projects([project_id]).filter(run_uuid=run_id).first()
    if run is None:
        return ""
    siblings = Run.objects.filter(experiment=run.experiment_id).order_by("-start_time")
    recent = siblings.values_list("run_uuid", flat=True)[:MOST_MODELS]
    versions, _ = versions_of_runs(project_id, recent)
    if versions:
        return versions[0].model
    own = next((model.name for model in logged if model.name != "model"), "")
    name = own or run.experiment.name
    return "".join(c for c in name if c.isprintable() and c not in "/:")[:100]


def models_of_runs(
    project_id: str, run_ids: Sequence[str]
) -> dict[str, list[tuple[str, int | None]]]:
    """Return the models of each run: registered ones with their version, then logged ones."""
    models: dict[str, list[tuple[str, int | None]]] = defaultdict(list)
    for name, number, run_id in versions_from_runs(project_id, run_ids):
        models[run_id].append((name, number))
    logged = LoggedModel.objects.in_projects([project_id]).filter(source_run_id__in=run_ids)
    names = logged.exclude(lifecycle_stage="deleted").order_by("name")
    for logged_by, name in names.values_list("source_run_id", "name").distinct():
        run_id = logged_by or ""
        if all(number is None for _, number in models[run_id]):
            models[run_id].append((name, None))
    return models
