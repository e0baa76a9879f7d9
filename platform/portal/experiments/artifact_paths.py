"""Artifact paths from clients or tables, validated part by part."""

from portal.core.errors import InvalidInput
from slipway.schemas.names import path_error

_SCHEME = "mlflow-artifacts:/"


def artifact_path_of(project_id: str, uri: str) -> str | None:
    """Return the place of an artifact address of a project, None when it is not one of ours."""
    if not uri.startswith(_SCHEME):
        return None
    parts = uri.removeprefix(_SCHEME).strip("/").split("/")
    if parts[:2] != ["workspaces", project_id] or len(parts) < 4 or not all(map(_is_part, parts)):
        return None
    return "/".join(parts)


def checked_path(path: str) -> str:
    """Return a path below the artifacts of a run, empty for their top. Raises InvalidInput."""
    parts = [part for part in path.strip("/").split("/") if part]
    fault = path_error("/".join(parts)) if parts else None
    if fault is not None:
        raise InvalidInput(
            f"The path of the artifact {fault}.",
            code="bad_path",
            field="path",
            next_step="Use a path from the list of artifacts.",
        )
    return "/".join(parts)


def _is_part(part: str) -> bool:
    return part not in ("", ".", "..") and part.isprintable() and "\\" not in part
