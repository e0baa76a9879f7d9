"""What was captured, as DuckDB finds it."""

import duckdb

from tests.workers.serving import Plane


def captured(served: Plane) -> set[str]:
    """Ids of the predictions that are in Parquet."""
    found = sorted(served.predictions_dir.glob("*/*/*.parquet"))
    if not found:
        return set()
    names = [str(path) for path in found]
    rows = duckdb.execute("SELECT prediction_id FROM read_parquet(?)", [names]).fetchall()
    return {row[0] for row in rows}
