"""Writing to runs: one transaction each, no MLflow.

A batch that comes again changes nothing: every point is a key of its table. Two writers of one run
take its rows in the same order, so neither waits for ever.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Any, TypeVar

from django.db import InterfaceError, OperationalError, connections, transaction

from portal.experiments.adapters.mlflow.batches import (
    GIVEN_PARAMS,
    RUN_NAME,
    Batch,
    Point,
    UnsupportedRequest,
)
from portal.experiments.models.tables import DATABASE

Result = TypeVar("Result")
_POINTS = "metrics (key, value, timestamp, step, is_nan, run_uuid)"
_LATEST = "latest_metrics (key, value, timestamp, step, is_nan, run_uuid)"
_NEWER = """ON CONFLICT (key, run_uuid) DO UPDATE SET value = excluded.value,
    timestamp = excluded.timestamp, step = excluded.step, is_nan = excluded.is_nan
    WHERE (excluded.step, excluded.timestamp, excluded.value)
        > (latest_metrics.step, latest_metrics.timestamp, latest_metrics.value)"""
_REPLACE = "ON CONFLICT (key, run_uuid) DO UPDATE SET value = excluded.value"
# Part of each statement that writes: finds the run, and checks its project and state.
_OURS = """SELECT r.run_uuid FROM runs r JOIN experiments e ON e.experiment_id = r.experiment_id
    WHERE r.run_uuid = %s AND e.workspace = %s AND r.lifecycle_stage = 'active'"""
_ARRAYS = "unnest(%s::text[], %s::float8[], %s::int8[], %s::int8[], %s::bool[]) AS u(k, v, t, s, n)"
_POSTGRES_METRICS = f"""WITH ours AS ({_OURS}),
    points AS (INSERT INTO {_POINTS} SELECT k, v, t, s, n, run_uuid FROM ours, {_ARRAYS}
        ON CONFLICT DO NOTHING),
    latest AS (INSERT INTO {_LATEST} SELECT k, v, t, s, n, run_uuid FROM ours, {_ARRAYS} {_NEWER})
    SELECT run_uuid FROM ours"""
# SQLite allows one writer. Writers of this process queue here, instead of polling for its lock.
_SQLITE_TURN = Lock()


@contextmanager
def writing() -> Iterator[Any]:
    """Yield a cursor inside one transaction of MLflow's tables."""
    connection = connections[DATABASE]
    if connection.vendor == "sqlite":
        with _SQLITE_TURN, transaction.atomic(using=DATABASE), connection.cursor() as cursor:
            yield cursor
    else:
        with transaction.atomic(using=DATABASE), connection.cursor() as cursor:
            yield cursor


def retry_once(work: Callable[[], Result]) -> Result:
    """Do some work, and again if the connection to the database turns out to be gone.

    Only for work that may be done twice.
    """
    connection = connections[DATABASE]
    try:
        return work()
    except (OperationalError, InterfaceError):
        if connection.in_atomic_block or connection.vendor == "sqlite":
            raise
        connection.close()
        return work()


def record(project_id: str, batch: Batch) -> None:
    """Write a batch to a run of the project.

    Raises Unusual, with nothing written, when the run is not an active one of the project, or a
    parameter has another value already, unless it is one that the platform logged for a job.
    """
    retry_once(lambda: _record(project_id, batch))


def _record(project_id: str, batch: Batch) -> None:
    if connections[DATABASE].vendor != "sqlite" and not (batch.params or batch.tags):
        _metrics_to_postgres(project_id, batch)
        return
    with writing() as cursor:
        cursor.execute(_OURS, [batch.run_id, project_id])
        if cursor.fetchone() is None:
            raise UnsupportedRequest
        is_sqlite = connections[DATABASE].vendor == "sqlite"
        if batch.params:
            _write_params(cursor, batch.run_id, batch.params)
        if batch.metrics and is_sqlite:
            _metrics_to_sqlite(cursor, batch)
        elif batch.metrics:
            _run_postgres(cursor, project_id, batch)
        if batch.tags:
            write_tags(cursor, batch.run_id, batch.tags)


def _columns(points: list[Point]) -> list[list[Any]]:
    return [list(column) for column in zip(*points, strict=True)] or [[], [], [], [], []]


def _run_postgres(cursor: Any, project_id: str, batch: Batch) -> bool:
    points = _columns(list(batch.metrics))
    cursor.execute(
        _POSTGRES_METRICS, [batch.run_id, project_id, *points, *_columns(batch.latest())]
    )
    return cursor.fetchone() is not None


def _metrics_to_postgres(project_id: str, batch: Batch) -> None:
    """Write metrics alone: one statement, which is a transaction of its own."""
    with connections[DATABASE].cursor() as cursor:
        if not _run_postgres(cursor, project_id, batch):
            raise UnsupportedRequest


def _metrics_to_sqlite(cursor: Any, batch: Batch) -> None:
    cursor.executemany(
        f"INSERT OR IGNORE INTO {_POINTS} VALUES (%s, %s, %s, %s, %s, %s)",
        [(*point, batch.run_id) for point in batch.metrics],
    )
    cursor.executemany(
        f"INSERT INTO {_LATEST} VALUES (%s, %s, %s, %s, %s, %s) {_NEWER}",
        [(*point, batch.run_id) for point in batch.latest()],
    )


def _write_params(cursor: Any, run_id: str, params: Mapping[str, str]) -> None:
    cursor.executemany(
        "INSERT INTO params (key, value, run_uuid) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
        [(key, params[key], run_id) for key in sorted(params)],
    )
    marks = ", ".join(["%s"] * len(params))
    cursor.execute(
        f"SELECT key, value FROM params WHERE run_uuid = %s AND key IN ({marks})",
        [run_id, *params],
    )
    changed = {key for key, value in cursor.fetchall() if params[key] != value}
    if changed:
        _replace_given(cursor, run_id, {key: params[key] for key in sorted(changed)})


def _replace_given(cursor: Any, run_id: str, params: Mapping[str, str]) -> None:
    """Replace parameters that the platform logged by those of the script, once each.

    Raises UnsupportedRequest for any other: MLflow's parameters never change.
    """
    cursor.execute(
        "SELECT value FROM tags WHERE run_uuid = %s AND key = %s", [run_id, GIVEN_PARAMS]
    )
    row = cursor.fetchone()
    try:
        given = json.loads(row[0]) if row else []
    except ValueError:  # the tag is as open to clients as any
        given = []
    if not isinstance(given, list) or not all(name in given for name in params):
        raise UnsupportedRequest
    cursor.executemany(
        "UPDATE params SET value = %s WHERE run_uuid = %s AND key = %s",
        [(value, run_id, key) for key, value in params.items()],
    )
    rest = json.dumps([name for name in given if name not in params])
    cursor.execute(
        "UPDATE tags SET value = %s WHERE run_uuid = %s AND key = %s", [rest, run_id, GIVEN_PARAMS]
    )


def write_tags(cursor: Any, run_id: str, tags: Mapping[str, str]) -> None:
    """Set tags of a run. The tag with its name renames it."""
    cursor.executemany(
        f"INSERT INTO tags (key, value, run_uuid) VALUES (%s, %s, %s) {_REPLACE}",
        [(key, tags[key], run_id) for key in sorted(tags)],
    )
    if RUN_NAME in tags:
        cursor.execute("UPDATE runs SET name = %s WHERE run_uuid = %s", [tags[RUN_NAME], run_id])


def now_ms() -> int:
    """Return the time in milliseconds since 1970, as MLflow's tables hold it."""
    return time.time_ns() // 1_000_000
