"""The Bin over MLflow's tables."""

from collections.abc import Sequence

from django.db import transaction

from portal.experiments.adapters.mlflow.sql import change, marks, rows
from portal.experiments.models.tables import DATABASE

_OURS = "experiment_id IN (SELECT experiment_id FROM experiments WHERE workspace = %s"
_OF_RUNS = ("metrics", "latest_metrics", "params", "tags")


class SqlTrash:
    """Writes MLflow's tables. See `portal.experiments.ports.Trash` for the methods."""

    def add(self, project_id: str, run_ids: Sequence[str], *, at_ms: int) -> list[str]:
        """Move runs to the trash. Returns those that were not there."""
        if not run_ids:
            return []
        with transaction.atomic(using=DATABASE):
            result = _runs_in_stage(project_id, run_ids, "active")
            if result:
                change(
                    "UPDATE runs SET lifecycle_stage = 'deleted', deleted_time = %s "
                    f"WHERE run_uuid IN ({marks(result)}) AND lifecycle_stage = 'active'",
                    [at_ms, *result],
                )
        return result

    def restore(self, project_id: str, run_ids: Sequence[str]) -> list[str]:
        """Restore runs whose experiment is in use. Returns those that were restored."""
        if not run_ids:
            return []
        with transaction.atomic(using=DATABASE):
            result = _runs_in_stage(
                project_id, run_ids, "deleted", " AND lifecycle_stage = 'active'"
            )
            if result:
                change(
                    "UPDATE runs SET lifecycle_stage = 'active', deleted_time = NULL "
                    f"WHERE run_uuid IN ({marks(result)}) AND lifecycle_stage = 'deleted'",
                    result,
                )
        return result

    def add_experiment(self, project_id: str, experiment_id: int, *, at_ms: int) -> bool:
        """Move an experiment to the trash with its runs. Returns whether it was in use."""
        with transaction.atomic(using=DATABASE):
            if not _move_experiment(project_id, experiment_id, "active", "deleted", at_ms):
                return False
            change(
                "UPDATE runs SET lifecycle_stage = 'deleted', deleted_time = %s "
                "WHERE experiment_id = %s AND lifecycle_stage = 'active'",
                [at_ms, experiment_id],
            )
            return True

    def restore_experiment(self, project_id: str, experiment_id: int, *, at_ms: int) -> bool:
        """Restore an experiment and the runs deleted with it. Returns whether it was deleted."""
        with transaction.atomic(using=DATABASE):
            went = rows(
                "SELECT last_update_time FROM experiments WHERE experiment_id = %s",
                [experiment_id],
            )
            if not _move_experiment(project_id, experiment_id, "deleted", "active", at_ms):
                return False
            # Runs that were in the trash before the experiment stay there.
            change(
                "UPDATE runs SET lifecycle_stage = 'active', deleted_time = NULL "
                "WHERE experiment_id = %s AND lifecycle_stage = 'deleted' AND deleted_time >= %s",
                [experiment_id, went[0][0] or 0],
            )
            return True

    def binned(
        self, *, before_ms: int, project_id: str | None = None, limit: int
    ) -> Sequence[tuple[str, str]]:
        """Return runs moved to the trash before a time, as (project id, run id), oldest first."""
        ours = " AND e.workspace = %s" if project_id is not None else ""
        listed = rows(
            "SELECT e.workspace, r.run_uuid FROM runs r "
            "JOIN experiments e ON e.experiment_id = r.experiment_id "
            f"WHERE r.lifecycle_stage = 'deleted' AND r.deleted_time <= %s{ours} "
            f"ORDER BY r.deleted_time LIMIT {int(limit)}",
            [before_ms, *([project_id] if project_id is not None else [])],
        )
        return [(row[0], row[1]) for row in listed]

    def destroy(self, run_id: str) -> str | None:
        """Delete a run in the trash for good. Returns the location of its artifacts."""
        with transaction.atomic(using=DATABASE):
            # Lock the row first, so that the run cannot be restored concurrently.
            taken = change(
                "UPDATE runs SET deleted_time = deleted_time "
                "WHERE run_uuid = %s AND lifecycle_stage = 'deleted'",
                [run_id],
            )
            if not taken:
                return None
            place = rows("SELECT artifact_uri FROM runs WHERE run_uuid = %s", [run_id])[0][0]
            for table in _OF_RUNS:
                change(f"DELETE FROM {table} WHERE run_uuid = %s", [run_id])
            change(
                "DELETE FROM input_tags WHERE input_uuid IN (SELECT input_uuid FROM inputs "
                "WHERE destination_id = %s OR source_id = %s)",
                [run_id, run_id],
            )
            change("DELETE FROM inputs WHERE destination_id = %s OR source_id = %s", [run_id] * 2)
            change("DELETE FROM logged_model_metrics WHERE run_id = %s", [run_id])
            change("DELETE FROM runs WHERE run_uuid = %s", [run_id])
            return place or ""

    def unknown(self, project_id: str, run_ids: Sequence[str]) -> set[str]:
        """Return those ids that are of no run of the project."""
        return _missing("runs", "run_uuid", project_id, run_ids)

    def unknown_models(self, project_id: str, model_ids: Sequence[str]) -> set[str]:
        """Return those ids that are of no logged model of the project."""
        return _missing("logged_models", "model_id", project_id, model_ids)


def _runs_in_stage(
    project_id: str, run_ids: Sequence[str], stage: str, more: str = ""
) -> list[str]:
    records = rows(
        f"SELECT run_uuid FROM runs WHERE run_uuid IN ({marks(run_ids)}) "
        f"AND lifecycle_stage = %s AND {_OURS}{more})",
        [*run_ids, stage, project_id],
    )
    return [row[0] for row in records]


def _move_experiment(
    project_id: str, experiment_id: int, before: str, after: str, at_ms: int
) -> bool:
    moved = change(
        "UPDATE experiments SET lifecycle_stage = %s, last_update_time = %s "
        "WHERE experiment_id = %s AND workspace = %s AND lifecycle_stage = %s",
        [after, at_ms, experiment_id, project_id, before],
    )
    return moved == 1


def _missing(table: str, column: str, project_id: str, ids: Sequence[str]) -> set[str]:
    if not ids:
        return set()
    records = rows(
        f"SELECT {column} FROM {table} WHERE {column} IN ({marks(ids)}) AND {_OURS})",
        [*ids, project_id],
    )
    return set(ids) - {row[0] for row in records}
