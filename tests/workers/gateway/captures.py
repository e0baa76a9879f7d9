"""What was captured, as DuckDB finds it."""

import duckdb

from tests.workers.serving import Plane


def captured(served: Plane) -> set[str]:
    """Ids of the predictions that are in Parquet."""
    return set(statuses(served))


def statuses(served: Plane) -> dict[str, int]:
    """What the predictions that are in Parquet ended with, by id."""
    paths = sorted(served.predictions_dir.glob("*/*/*.parquet"))
    if not paths:
        return {}
    names = [str(path) for path in paths]
    rows = duckdb.execute("SELECT prediction_id, status FROM read_parquet(?)", [names])
    return dict(rows.fetchall())
