"""Ownership of MLflow's objects by projects, and the default experiment of each project."""

import time
from threading import Lock

from django.db import IntegrityError, connections, transaction

from portal.experiments.adapters.mlflow.sql import rows
from portal.experiments.models.tables import DATABASE

DEFAULT_NAME = "Default"
_LONGEST_ID = 64
_MOST_DIGITS = 9
_OWNERS = {
    "run": "SELECT e.workspace FROM runs r JOIN experiments e"
    " ON e.experiment_id = r.experiment_id WHERE r.run_uuid = %s",
    "model": "SELECT e.workspace FROM logged_models m JOIN experiments e"
    " ON e.experiment_id = m.experiment_id WHERE m.model_id = %s",
    "experiment": "SELECT workspace FROM experiments WHERE experiment_id = %s",
}


def belongs_to_project(project_id: str, kind: str, identity: str) -> bool:
    """Return whether a `run`, `model` or `experiment` exists and is the project's."""
    if len(identity) > _LONGEST_ID or "\0" in identity:
        return False
    value: str | int = identity
    if kind == "experiment":
        if not (identity.isascii() and identity.isdigit() and len(identity) <= _MOST_DIGITS):
            return False
        value = int(identity)
    return [row[0] for row in rows(_OWNERS[kind], [value])] == [project_id]


class DefaultExperiments:
    """The experiment `Default` of every project, made when it is first asked for.

    MLflow has one only, numbered 0. Clients that name no experiment mean it. What was found once is
    remembered, for it is never removed.
    """

    def __init__(self) -> None:
        self._known: dict[str, int] = {}
        self._lock = Lock()

    def of(self, project_id: str) -> int:
        """Return its id."""
        known = self._known.get(project_id)
        if known is None:
            with self._lock:
                number = _find(project_id)
                known = _create_default_experiment(project_id) if number is None else number
                self._known[project_id] = known
        return known

    def clear(self) -> None:
        """Clear the cache, because another database is in force."""
        self._known.clear()


default_experiments = DefaultExperiments()


def artifact_location(project_id: str, experiment_id: int) -> str:
    """Return where MLflow stores the artifacts of an experiment."""
    return f"mlflow-artifacts:/workspaces/{project_id}/{experiment_id}"


def _find(project_id: str) -> int | None:
    listed = rows(
        "SELECT experiment_id FROM experiments WHERE workspace = %s AND name = %s",
        [project_id, DEFAULT_NAME],
    )
    return int(listed[0][0]) if listed else None


def _create_default_experiment(project_id: str) -> int:
    now_ms = time.time_ns() // 1_000_000
    try:
        with transaction.atomic(using=DATABASE), connections[DATABASE].cursor() as cursor:
            cursor.execute(
                "INSERT INTO experiments (name, workspace, lifecycle_stage, creation_time,"
                " last_update_time) VALUES (%s, %s, 'active', %s, %s) RETURNING experiment_id",
                [DEFAULT_NAME, project_id, now_ms, now_ms],
            )
            made = int(cursor.fetchone()[0])
            cursor.execute(
                "UPDATE experiments SET artifact_location = %s WHERE experiment_id = %s",
                [artifact_location(project_id, made), made],
            )
            return made
    except IntegrityError:  # another process was faster
        result = _find(project_id)
        if result is None:
            raise
        return result
