"""Checks of artifact paths against what is stored, before MLflow's server sees a request.

On a disk MLflow fails with an exception where a file and a folder would have the same name. A file
in the place of one of its own folders would make every later artifact of that run fail.
"""

import re

from portal.api.mlflow.answers import invalid, unavailable
from portal.api.mlflow.routes import FILES, MlflowRoute
from portal.core.errors import Unavailable
from portal.experiments.artifact_paths import artifact_path_of
from portal.experiments.factories import artifact_store
from portal.experiments.models import Run

_LIST_OF_RUN = "/api/2.0/mlflow/artifacts/list"
_LIST = f"{FILES}/artifacts"
_OF_FILE = f"{FILES}/artifacts/<path:artifact_path>"
_FOLDER = "artifacts"
_ROOT = "workspaces"
_UPLOADS = "models"
_UPLOAD = re.compile(r"[0-9a-f]{16}")


def check_artifact(
    project_id: str, route: MlflowRoute, path: str, query: list[tuple[str, str]]
) -> None:
    """Raise Refusal for a request with an invalid artifact path."""
    if not is_checked(route):
        return
    try:
        if route.path == _LIST_OF_RUN:
            _check_list(_place_in_run(project_id, dict(query)))
        elif route.path == _LIST:
            _check_list(_place(project_id, dict(query).get("path", "")))
        else:
            match = route.pattern.match(path)
            _check_file(project_id, route, match["artifact_path"] if match else "")
    except Unavailable as error:
        raise unavailable(
            "The artifact store does not respond; try again in a few seconds."
        ) from error


def is_checked(route: MlflowRoute) -> bool:
    """Return whether a route has the path of an artifact."""
    return route.path.startswith(f"{FILES}/") or route.path == _LIST_OF_RUN


def _check_file(project_id: str, route: MlflowRoute, path: str) -> None:
    place = _place(project_id, path)
    if not place:  # MLflow refuses the folders of other projects.
        return
    store = artifact_store()
    is_read, is_deleted = route.method == "GET", route.method == "DELETE"
    if not is_read:
        _check_depth(path, place, allow_folder=is_deleted)
    _check_parents(place)
    if is_read and store.is_folder(place):
        raise invalid(f"{_short(path)} is a folder; list it, or read one of its files.")
    if route.path == _OF_FILE and (is_read or is_deleted):
        return
    if path.endswith("/") or (store.has_folders and store.is_folder(place)):
        raise invalid(f"{_short(path)} is a folder; write a file under another name.")


def _check_list(place: str) -> None:
    if place:
        _check_parents(place)


def _check_depth(path: str, place: str, *, allow_folder: bool) -> None:
    """Raise Refusal for a path outside of the folders that hold files.

    These are the `artifacts` of a run, a logged model or a trace, and uploads of
    `slipway.register`: `models/NAME/UPLOAD`.
    """
    parts = place.split("/")[2:]
    depth = parts.index(_FOLDER) if _FOLDER in parts else 0
    if parts[0] == _UPLOADS and len(parts) > 2 and _UPLOAD.fullmatch(parts[2]):
        depth = 2
    if depth >= 1 and len(parts) - depth >= (1 if allow_folder else 2):
        return
    raise invalid(
        f"{_short(path)} is not an artifact path: expected EXPERIMENT/RUN/artifacts/FILE, or the "
        "same with models/MODEL or traces/TRACE, or models/NAME, 16 hexadecimal digits and FILE."
    )


def _check_parents(place: str) -> None:
    """Raise Refusal for a path below a file."""
    store = artifact_store()
    if not store.has_folders:
        return
    parts = place.split("/")
    for end in range(len(parts) - 1, 2, -1):
        parent = "/".join(parts[:end])
        if store.size_of(parent) is not None:
            raise invalid(f"{_short(parts[end - 1])} is a file, so it cannot contain other files.")
        if store.is_folder(parent):
            return


def _place_in_run(project_id: str, query: dict[str, str]) -> str:
    run_id = query.get("run_id") or query.get("run_uuid") or ""
    path = query.get("path", "").strip("/")
    run = Run.objects.in_projects([project_id]).filter(run_uuid=run_id).first() if path else None
    folder = artifact_path_of(project_id, run.artifact_uri or "") if run is not None else None
    return f"{folder}/{path}" if folder else ""


def _place(project_id: str, path: str) -> str:
    """Return the location of a path in the store, "" if it belongs to another project."""
    parts = path.strip("/").split("/")
    if parts[0] != _ROOT:
        return "/".join([_ROOT, project_id, *parts])
    return "/".join(parts) if parts[1:2] == [project_id] else ""


def _short(path: str) -> str:
    return path if len(path) <= 200 else f"…{path[-200:]}"
