"""The Opener over MLflow's tables: runs that the platform makes for what it starts."""

import json
from collections.abc import Mapping, Sequence

from django.db import transaction

from portal.experiments.adapters.mlflow.batches import GIVEN_PARAMS, MOST_PARAM
from portal.experiments.adapters.mlflow.sql import change, marks, rows
from portal.experiments.models.tables import DATABASE
from portal.experiments.ports import NewRun
from slipway.schemas.truncation import shorten, shorten_name

_ROOT = "mlflow-artifacts:/workspaces"
_LONGEST_TAG = 8000
_LONGEST_EXPERIMENT = 256


class SqlRunWriter:
    """Writes MLflow's tables. See `portal.experiments.ports.RunWriter` for the methods."""

    def exists(self, run_id: str) -> bool:
        """Return whether the run exists."""
        return bool(rows("SELECT 1 FROM runs WHERE run_uuid = %s", [run_id]))

    def begin(self, run: NewRun) -> None:
        """Create a run, and create or restore its experiment if needed."""
        with transaction.atomic(using=DATABASE):
            experiment_id, place = _experiment(run)
            made = change(
                "INSERT INTO runs (run_uuid, name, source_type, source_name, entry_point_name, "
                "user_id, status, start_time, source_version, lifecycle_stage, artifact_uri, "
                "experiment_id) VALUES (%s, %s, 'JOB', %s, '', %s, 'RUNNING', %s, '', 'active', "
                "%s, %s) ON CONFLICT DO NOTHING",
                [
                    *(run.id, shorten(run.name, 250), shorten(run.source, 500)),
                    *(run.user, run.started_ms),
                    *(f"{place}/{run.id}/artifacts", experiment_id),
                ],
            )
            if not made:
                return
            params = _replaceable(run.params)
            for key, value in sorted(params.items()):
                change(
                    "INSERT INTO params (key, value, run_uuid) VALUES (%s, %s, %s)",
                    [key, shorten(value, MOST_PARAM), run.id],
                )
            tags = {**run.tags, GIVEN_PARAMS: json.dumps(list(params))} if params else run.tags
            for key, value in sorted(tags.items()):
                change(
                    "INSERT INTO tags (key, value, run_uuid) VALUES (%s, %s, %s)",
                    [shorten_name(key, 250), shorten(value, _LONGEST_TAG), run.id],
                )

    def move(self, project_id: str, run_id: str, experiment_id: int) -> bool:
        """Move a run to another active experiment of the project. Returns whether it did.

        Its artifacts stay where they are.
        """
        ours = "SELECT experiment_id FROM experiments WHERE workspace = %s"
        moved = change(
            "UPDATE runs SET experiment_id = %s WHERE run_uuid = %s AND experiment_id != %s "
            f"AND experiment_id IN ({ours}) AND EXISTS "
            f"({ours} AND experiment_id = %s AND lifecycle_stage = 'active')",
            [experiment_id, run_id, experiment_id, project_id, project_id, experiment_id],
        )
        return moved > 0

    def resume(self, run_id: str) -> None:
        """Record that a run resumes."""
        change(
            "UPDATE runs SET status = 'RUNNING', end_time = NULL "
            "WHERE run_uuid = %s AND status != 'RUNNING'",
            [run_id],
        )

    def end(self, run_ids: Sequence[str], status: str, *, ended_ms: int) -> int:
        """End runs that do not have this end yet, and return their number."""
        if not run_ids:
            return 0
        return change(
            f"UPDATE runs SET status = %s, end_time = %s WHERE run_uuid IN ({marks(run_ids)}) "
            "AND (status != %s OR end_time IS NULL)",
            [status, ended_ms, *run_ids, status],
        )

    def unended(self, run_ids: Sequence[str]) -> set[str]:
        """Return those runs that still count as running."""
        if not run_ids:
            return set()
        records = rows(
            f"SELECT run_uuid FROM runs WHERE run_uuid IN ({marks(run_ids)}) "
            "AND status IN ('RUNNING', 'SCHEDULED')",
            run_ids,
        )
        return {row[0] for row in records}


def _replaceable(params: Mapping[str, str]) -> dict[str, str]:
    """Return the parameters whose names fit into the tag that lets a script replace them.

    One beyond it is not logged: it would fail a script that formats its value in another way.
    """
    fitting: dict[str, str] = {}
    characters = 2
    for key, value in params.items():
        name = shorten_name(key, 250)
        characters += len(json.dumps(name)) + 2
        if characters > _LONGEST_TAG:
            break
        fitting[name] = value
    return fitting


def _experiment(run: NewRun) -> tuple[int, str]:
    """Return the id of the run's experiment and the place of its artifacts."""
    name = shorten_name(run.experiment, _LONGEST_EXPERIMENT)
    change(
        "INSERT INTO experiments (name, workspace, lifecycle_stage, creation_time, "
        "last_update_time) VALUES (%s, %s, 'active', %s, %s) ON CONFLICT DO NOTHING",
        [name, run.project_id, run.started_ms, run.started_ms],
    )
    change(
        "UPDATE experiments SET lifecycle_stage = 'active' "
        "WHERE workspace = %s AND name = %s AND lifecycle_stage = 'deleted'",
        [run.project_id, name],
    )
    records = rows(
        "SELECT experiment_id, artifact_location FROM experiments "
        "WHERE workspace = %s AND name = %s",
        [run.project_id, name],
    )
    experiment_id, place = records[0]
    if not place:
        place = f"{_ROOT}/{run.project_id}/{experiment_id}"
        change(
            "UPDATE experiments SET artifact_location = %s WHERE experiment_id = %s",
            [place, experiment_id],
        )
    return int(experiment_id), str(place)
