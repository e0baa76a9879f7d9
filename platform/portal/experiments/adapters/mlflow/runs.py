"""Making and changing runs, without MLflow."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from portal.experiments.adapters.mlflow.batches import (
    RUN_NAME,
    UnsupportedRequest,
    int64_of,
    run_id_of,
    tags_of,
)
from portal.experiments.adapters.mlflow.responses import run_answer
from portal.experiments.adapters.mlflow.run_names import new_run_name
from portal.experiments.adapters.mlflow.sql import rows
from portal.experiments.adapters.mlflow.writes import now_ms, write_tags, writing

_STATUSES = frozenset({"RUNNING", "SCHEDULED", "FINISHED", "FAILED", "KILLED"})
_MOST_NAME = 250
_MOST_USER = 256
_MOST_DIGITS = 9
# On the run of a job: the attempt in which its script has begun it.
_BEGUN_TAG = "slipway.begun"


@dataclass(frozen=True)
class RunRequest:
    """Fields of a `runs/create` request."""

    experiment_id: int
    user: str
    started_ms: int
    name: str
    tags: Mapping[str, str]


def _text(content: Mapping[str, Any], name: str, most: int) -> str:
    text = content.get(name, "")
    if not isinstance(text, str) or len(text) > most:
        raise UnsupportedRequest
    return text


def new_run_of(content: Mapping[str, Any]) -> RunRequest:
    """Read `runs/create`. Raises Unusual."""
    if not content.keys() <= {"experiment_id", "user_id", "start_time", "run_name", "tags"}:
        raise UnsupportedRequest
    experiment = _text(content, "experiment_id", _MOST_DIGITS)
    if not (experiment.isascii() and experiment.isdigit()):
        raise UnsupportedRequest
    tags = tags_of(content)
    name, tagged = _text(content, "run_name", _MOST_NAME), tags.get(RUN_NAME, "")
    if (name and tagged and name != tagged) or len(tagged) > _MOST_NAME:
        raise UnsupportedRequest
    return RunRequest(
        int(experiment),
        _text(content, "user_id", _MOST_USER),
        int64_of(content.get("start_time", now_ms())),
        name or tagged or new_run_name(),
        tags,
    )


def create_run(project_id: str, run_request: RunRequest) -> dict[str, Any]:
    """Create a run and return it as clients read it.

    Raises Unusual when the experiment is not an active one of the project.
    """
    run_id = uuid.uuid4().hex
    tags = {**run_request.tags, RUN_NAME: run_request.name}
    with writing() as cursor:
        cursor.execute(
            "SELECT artifact_location FROM experiments WHERE experiment_id = %s AND workspace = %s"
            " AND lifecycle_stage = 'active'",
            [run_request.experiment_id, project_id],
        )
        row = cursor.fetchone()
        if row is None or not row[0]:
            raise UnsupportedRequest
        artifacts = f"{row[0]}/{run_id}/artifacts"
        cursor.execute(
            "INSERT INTO runs (run_uuid, name, source_type, source_name, entry_point_name,"
            " user_id, status, start_time, source_version, lifecycle_stage, artifact_uri,"
            " experiment_id) VALUES"
            " (%s, %s, 'UNKNOWN', '', '', %s, 'RUNNING', %s, '', 'active', %s, %s)",
            [
                run_id,
                run_request.name,
                run_request.user,
                run_request.started_ms,
                artifacts,
                run_request.experiment_id,
            ],
        )
        write_tags(cursor, run_id, tags)
    info = {
        "run_uuid": run_id,
        "experiment_id": str(run_request.experiment_id),
        "run_name": run_request.name,
        "user_id": run_request.user,
        "status": "RUNNING",
        "start_time": run_request.started_ms,
        "artifact_uri": artifacts,
        "lifecycle_stage": "active",
        "run_id": run_id,
    }
    listed = [{"key": key, "value": value} for key, value in tags.items()]
    return {"info": info, "data": {"tags": listed}, "inputs": {}}


def begin_run(run_id: str, attempt: str) -> bool:
    """Record that a script has begun an existing run in this attempt. Returns False if it had."""
    with writing() as cursor:
        return _begin(cursor, run_id, attempt)


def continue_run(
    project_id: str, run_id: str, attempt: str, content: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Answer `runs/create` with an existing run, if no script has begun it in this attempt.

    The run gets the experiment, the tags and the name of the request. Returns None if it has been
    begun. Raises UnsupportedRequest, and changes nothing, as `create_run` does.
    """
    requested = new_run_of(content)
    has_name = bool(content.get("run_name") or requested.tags.get(RUN_NAME))
    names = {RUN_NAME: requested.name} if has_name else {}
    with writing() as cursor:
        if not _begin(cursor, run_id, attempt):
            return None
        cursor.execute(
            "UPDATE runs SET experiment_id = %s, status = 'RUNNING', end_time = NULL"
            " WHERE run_uuid = %s AND EXISTS (SELECT 1 FROM experiments WHERE experiment_id = %s"
            " AND workspace = %s AND lifecycle_stage = 'active')",
            [requested.experiment_id, run_id, requested.experiment_id, project_id],
        )
        if cursor.rowcount != 1:
            raise UnsupportedRequest
        write_tags(cursor, run_id, {**requested.tags, **names})
    return run_answer(project_id, run_id)


def _begin(cursor: Any, run_id: str, attempt: str) -> bool:
    cursor.execute(
        "INSERT INTO tags (key, value, run_uuid) SELECT %s, %s, run_uuid FROM runs"
        " WHERE run_uuid = %s AND lifecycle_stage = 'active'"
        " ON CONFLICT (key, run_uuid) DO UPDATE SET value = excluded.value"
        " WHERE tags.value != excluded.value",
        [_BEGUN_TAG, attempt, run_id],
    )
    return bool(cursor.rowcount == 1)


def update_run(project_id: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """Change the status, end or name of a run. Returns its info as clients read it.

    Raises Unusual when the body is not plain, or the run is not an active one of the project.
    """
    if not content.keys() <= {"run_id", "run_uuid", "status", "end_time", "run_name"}:
        raise UnsupportedRequest
    run_id, name = run_id_of(content), _text(content, "run_name", _MOST_NAME)
    changes: dict[str, Any] = {}
    if "status" in content:
        if content["status"] not in _STATUSES:
            raise UnsupportedRequest
        changes["status"] = content["status"]
    if "end_time" in content:
        changes["end_time"] = int64_of(content["end_time"])
    if name:
        changes["name"] = name
    with writing() as cursor:
        cursor.execute(
            "SELECT 1 FROM runs r JOIN experiments e ON e.experiment_id = r.experiment_id"
            " WHERE r.run_uuid = %s AND e.workspace = %s AND r.lifecycle_stage = 'active'",
            [run_id, project_id],
        )
        if cursor.fetchone() is None:
            raise UnsupportedRequest
        if changes:
            columns = ", ".join(f"{column} = %s" for column in changes)
            cursor.execute(
                f"UPDATE runs SET {columns} WHERE run_uuid = %s", [*changes.values(), run_id]
            )
        if name:
            write_tags(cursor, run_id, {RUN_NAME: name})
    values = run_answer(project_id, run_id)
    if values is None:
        raise UnsupportedRequest
    info: dict[str, Any] = values["info"]
    return info


def is_in_project(project_id: str, run_id: str) -> bool:
    """Return whether a run is the project's, in the trash or not."""
    records = rows(
        "SELECT 1 FROM runs r JOIN experiments e ON e.experiment_id = r.experiment_id"
        " WHERE r.run_uuid = %s AND e.workspace = %s",
        [run_id, project_id],
    )
    return bool(records)
