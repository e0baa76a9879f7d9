"""Changes that people make to runs: their name, tags and experiment."""

from collections.abc import Mapping, Sequence
from typing import Any

from portal.experiments.adapters.mlflow.sql import marks
from portal.experiments.adapters.mlflow.writes import write_tags, writing

_ACTIVE = (
    "SELECT r.run_uuid FROM runs r JOIN experiments e ON e.experiment_id = r.experiment_id "
    "WHERE e.workspace = %s AND r.lifecycle_stage = 'active' AND r.run_uuid"
)


class SqlRunEditor:
    """Writes MLflow's tables. See `portal.experiments.ports.RunEditor` for the methods."""

    def tag(
        self, project_id: str, run_ids: Sequence[str], tags: Mapping[str, str | None]
    ) -> list[str]:
        """Set tags of active runs, and remove those whose value is None."""
        if not run_ids:
            return []
        kept = {key: value for key, value in tags.items() if value is not None}
        removed = sorted(key for key, value in tags.items() if value is None)
        with writing() as cursor:
            changed = _active(cursor, project_id, run_ids)
            for run_id in changed:
                if kept:
                    write_tags(cursor, run_id, kept)
            if changed and removed:
                cursor.execute(
                    f"DELETE FROM tags WHERE run_uuid IN ({marks(changed)}) "
                    f"AND key IN ({marks(removed)})",
                    [*changed, *removed],
                )
        return changed

    def move(self, project_id: str, run_ids: Sequence[str], experiment_id: int) -> list[str]:
        """Move active runs to another active experiment of the project."""
        if not run_ids:
            return []
        with writing() as cursor:
            cursor.execute(
                "SELECT 1 FROM experiments WHERE experiment_id = %s AND workspace = %s "
                "AND lifecycle_stage = 'active'",
                [experiment_id, project_id],
            )
            changed = _active(cursor, project_id, run_ids) if cursor.fetchone() else []
            if changed:
                cursor.execute(
                    f"UPDATE runs SET experiment_id = %s WHERE run_uuid IN ({marks(changed)}) "
                    "AND lifecycle_stage = 'active'",
                    [experiment_id, *changed],
                )
        return changed


def _active(cursor: Any, project_id: str, run_ids: Sequence[str]) -> list[str]:
    """Return those runs that are active ones of the project, in one order for all writers."""
    cursor.execute(f"{_ACTIVE} IN ({marks(run_ids)}) ORDER BY 1", [project_id, *run_ids])
    return [row[0] for row in cursor.fetchall()]
