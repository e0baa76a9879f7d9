"""Resolves the source of a version to the location of its files, within its project."""

from urllib.parse import unquote, urlsplit

from portal.core.errors import InvalidInput, Unavailable
from portal.experiments.models import LoggedModel, ModelVersion, RegisteredModelAlias, Run
from portal.registry.adapters.artifacts import artifact_files
from portal.registry.catalog import DELETED
from portal.registry.ports import FilesUnreadable
from slipway.schemas.names import path_error

_ROOT = "workspaces"


def resolve_source(project_id: str, source: str) -> tuple[str, str]:
    """Return the location of the files of `source` and its run ("" if unknown).

    `source` is `runs:/RUN/path`, `models:/NAME/VERSION`, `models:/NAME@ALIAS`, `models:/m-ID` or
    `mlflow-artifacts:/path`. Raises InvalidInput for any other, for an object that does not exist,
    and for one of another project.
    """
    scheme, colon, rest = source.partition(":")
    if colon and scheme == "runs":
        return _resolve_run_uri(project_id, source, rest)
    if colon and scheme == "models":
        return _resolve_model_uri(project_id, source, rest)
    if colon and scheme == "mlflow-artifacts":
        folder_of(project_id, source)
        return source, ""
    raise InvalidInput(
        "A version must come from this project's own files: runs:/…, models:/… or "
        "mlflow-artifacts:/….",
        code="bad_source",
        field="source",
        next_step="Log the model to a run of this project, and use runs:/RUN_ID/model.",
    )


def require_files(project_id: str, source: str, location: str) -> None:
    """Raise InvalidInput for a source without a single file, which could never be served."""
    try:
        has_files = artifact_files().has_files(folder_of(project_id, location))
    except FilesUnreadable as error:
        raise Unavailable(
            "The artifact store does not respond.",
            retry_after_s=5,
            next_step="Try again. If it happens again, ask an administrator.",
        ) from error
    if has_files:
        return
    raise InvalidInput(
        f"There are no files under {source[:200]}.",
        code="no_such_files",
        field="source",
        next_step="Log the model first, then register it. The page of the run lists its models "
        "and artifacts.",
    )


def folder_of(project_id: str, location: str) -> str:
    """Return the folder below the artifacts of the installation, such as `workspaces/prj_…/1/…`.

    Raises InvalidInput for a location outside this project. A version from elsewhere may have
    `runs:/…` as its location, because MLflow stores it so.
    """
    if location.startswith("runs:"):
        location, _ = _resolve_run_uri(project_id, location, location.removeprefix("runs:"))
    parts = urlsplit(location)
    names = [unquote(name) for name in parts.path.split("/") if name]
    strange = (
        parts.scheme != "mlflow-artifacts"
        or parts.netloc
        or parts.query
        or parts.fragment
        or not names
        or any(_is_unsafe_name(name) for name in names)
    )
    if not strange and names[0] == _ROOT:
        strange = len(names) < 3 or names[1] != project_id
    elif not strange:
        names = [_ROOT, project_id, *names]
    if strange:
        raise _missing(location)
    return "/".join(names)


def _is_unsafe_name(name: str) -> bool:
    return "/" in name or "%" in name or path_error(name) is not None


def _resolve_run_uri(project_id: str, source: str, rest: str) -> tuple[str, str]:
    run_id, _, path = rest.removeprefix("/").partition("/")
    run = Run.objects.in_projects([project_id]).filter(run_uuid=run_id).first()
    if run is None or not path or any(_is_unsafe_name(name) for name in path.split("/")):
        raise _missing(source)
    # Since MLflow 3 a run's model is a separate object, whose name is the path.
    logged = LoggedModel.objects.in_projects([project_id]).filter(source_run_id=run_id, name=path)
    newest = logged.order_by("-creation_timestamp_ms").first()
    if newest is not None:
        return newest.artifact_location, run_id
    return f"{(run.artifact_uri or '').rstrip('/')}/{path}", run_id


def _resolve_model_uri(project_id: str, source: str, rest: str) -> tuple[str, str]:
    named = rest.lstrip("/")
    logged = LoggedModel.objects.in_projects([project_id]).filter(model_id=named).first()
    if logged is not None:
        return logged.artifact_location, logged.source_run_id or ""
    name, slash, version = named.rpartition("/")
    if not slash:
        name, _, alias = named.rpartition("@")
        pointing = RegisteredModelAlias.objects.filter(
            workspace=project_id, name=name, alias=alias
        ).first()
        version = str(pointing.version) if pointing else ""
    if not (version.isascii() and version.isdecimal() and len(version) < 10):
        raise _missing(source)
    versions = ModelVersion.objects.filter(workspace=project_id, name=name, version=int(version))
    row = versions.exclude(current_stage=DELETED).first()
    if row is None:
        raise _missing(source)
    return row.storage_location or row.source or "", row.run_id or ""


def _missing(source: str) -> InvalidInput:
    return InvalidInput(
        f"This project has nothing under {source[:200]}.",
        code="no_such_source",
        field="source",
        next_step="Open the page of the run, which lists its models.",
    )
