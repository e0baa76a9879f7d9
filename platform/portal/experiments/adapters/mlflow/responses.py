"""Runs and curves as an MLflow client reads them, straight from the tables."""

import base64
import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from portal.experiments.adapters.mlflow.search_filters import RunSortField, statement_of
from portal.experiments.adapters.mlflow.sql import SqlConditions, marks, rows
from portal.experiments.filters import FilterCondition
from portal.experiments.models.runs import number_of

_INFO = (
    "r.run_uuid, r.experiment_id, r.name, r.user_id, r.status, r.start_time, r.end_time, "
    "r.artifact_uri, r.lifecycle_stage"
)
_OURS = "runs r JOIN experiments e ON e.experiment_id = r.experiment_id"
# All builds of SQLite accept at least this many parameters per statement.
_AT_ONCE = 500
_STAGES = {
    "ACTIVE_ONLY": ("active",),
    "DELETED_ONLY": ("deleted",),
    "ALL": ("active", "deleted"),
}


def json_number(value: float, is_nan: object) -> float | str:
    """Return a metric as JSON of protobuf spells it, which has words for what is not finite."""
    number = number_of(value, is_nan=bool(is_nan))
    if math.isfinite(number):
        return number
    if math.isnan(number):
        return "NaN"
    return "Infinity" if number > 0 else "-Infinity"


def info_of(row: Sequence[Any]) -> dict[str, Any]:
    """Return what MLflow calls the info of a run, from a row of the columns above."""
    info = {
        "run_uuid": row[0],
        "experiment_id": str(row[1]),
        "run_name": row[2] or "",
        "user_id": row[3] or "",
        "status": row[4],
        "start_time": row[5],
        "artifact_uri": row[7],
        "lifecycle_stage": row[8],
        "run_id": row[0],
    }
    if row[6] is not None:
        info["end_time"] = row[6]
    return info


def run_answer(project_id: str, run_id: str) -> dict[str, Any] | None:
    """Return a run of the project with all that was logged to it, or None if it has no such run."""
    records = rows(
        f"SELECT {_INFO} FROM {_OURS} WHERE r.run_uuid = %s AND e.workspace = %s",
        [run_id, project_id],
    )
    if not records:
        return None
    run = _with_data([info_of(records[0])])[0]
    read = rows(
        "SELECT destination_id FROM inputs WHERE source_type = 'RUN_INPUT' AND source_id = %s"
        " AND destination_type = 'MODEL_INPUT'",
        [run_id],
    )
    if read:
        run["inputs"]["model_inputs"] = [{"model_id": row[0]} for row in read]
    return run


@dataclass(frozen=True)
class Search:
    """Runs that are wanted, in whose order, and which page of them."""

    experiment_ids: Sequence[int]
    view: str
    limit: int
    offset: int
    conditions: Sequence[FilterCondition] = ()
    sort_fields: Sequence[RunSortField] = ()


def search_runs(project_id: str, search: Search) -> tuple[list[dict[str, Any]], bool]:
    """Return runs of experiments of the project, and whether there are more."""
    if not search.experiment_ids:
        return [], False
    stages = _STAGES[search.view]
    where = SqlConditions()
    where.add(f"r.experiment_id IN ({marks(search.experiment_ids)})", *search.experiment_ids)
    where.add("e.workspace = %s", project_id)
    where.add(f"r.lifecycle_stage IN ({marks(stages)})", *stages)
    query = statement_of(search.conditions, search.sort_fields, where)
    records = rows(
        f"SELECT {_INFO} FROM {_OURS}{query.joins} WHERE {query.where.text}"
        f" ORDER BY {query.order} LIMIT %s OFFSET %s",
        [*query.join_values, *query.where.values, search.limit + 1, search.offset],
    )
    return _with_data([info_of(row) for row in records[: search.limit]]), len(
        records
    ) > search.limit


def _with_data(infos: list[dict[str, Any]]) -> list[dict[str, Any]]:
    values: dict[str, dict[str, Any]] = {}
    for info in infos:
        data: dict[str, Any] = {"metrics": [], "params": [], "tags": []}
        values[info["run_id"]] = {"info": info, "data": data, "inputs": {}, "outputs": {}}
    names = list(values)
    for start in range(0, len(names), _AT_ONCE):
        _fill(values, names[start : start + _AT_ONCE])
    for run in values.values():
        run["data"] = {name: listed for name, listed in run["data"].items() if listed}
    return list(values.values())


def _fill(values: Mapping[str, dict[str, Any]], names: Sequence[str]) -> None:
    some = marks(names)
    for run, key, value, timestamp, step, is_nan in rows(
        "SELECT run_uuid, key, value, timestamp, step, is_nan FROM latest_metrics"
        f" WHERE run_uuid IN ({some})",
        names,
    ):
        values[run]["data"]["metrics"].append(
            {
                "key": key,
                "value": json_number(value, is_nan),
                "timestamp": timestamp,
                "step": step,
            }
        )
    for table in ("params", "tags"):
        for run, key, value in rows(
            f"SELECT run_uuid, key, value FROM {table} WHERE run_uuid IN ({some})", names
        ):
            values[run]["data"][table].append({"key": key, "value": value or ""})
    _fill_inputs(values, names)
    for run, model, step in rows(
        "SELECT source_id, destination_id, step FROM inputs WHERE source_type = 'RUN_OUTPUT'"
        f" AND destination_type = 'MODEL_OUTPUT' AND source_id IN ({some})",
        names,
    ):
        values[run]["outputs"].setdefault("model_outputs", []).append(
            {"model_id": model, "step": step}
        )


def _fill_inputs(values: Mapping[str, dict[str, Any]], names: Sequence[str]) -> None:
    listed = rows(
        "SELECT i.destination_id, i.input_uuid, d.name, d.digest, d.dataset_source_type,"
        " d.dataset_source, d.dataset_schema, d.dataset_profile FROM inputs i"
        " JOIN datasets d ON d.dataset_uuid = i.source_id"
        f" WHERE i.destination_type = 'RUN' AND i.destination_id IN ({marks(names)})",
        names,
    )
    if not listed:
        return
    tags: dict[str, list[dict[str, str]]] = defaultdict(list)
    inputs = [row[1] for row in listed]
    for start in range(0, len(inputs), _AT_ONCE):
        some = inputs[start : start + _AT_ONCE]
        for uuid, name, value in rows(
            f"SELECT input_uuid, name, value FROM input_tags WHERE input_uuid IN ({marks(some)})",
            some,
        ):
            tags[uuid].append({"key": name, "value": value})
    columns = ("name", "digest", "source_type", "source", "schema", "profile")
    for row in listed:
        dataset = {
            name: value for name, value in zip(columns, row[2:], strict=True) if value is not None
        }
        values[row[0]]["inputs"].setdefault("dataset_inputs", []).append(
            {"tags": tags[row[1]], "dataset": dataset}
        )


def history(
    run_id: str, key: str, *, limit: int | None, offset: int
) -> tuple[list[dict[str, Any]], bool]:
    """Return the points of a curve in the order of time, and whether there are more."""
    order = "ORDER BY timestamp, step, value"
    bounds = "" if limit is None else f" LIMIT {limit + 1} OFFSET {offset}"
    records = rows(
        "SELECT value, is_nan, timestamp, step FROM metrics WHERE run_uuid = %s AND key = %s"
        f" {order}{bounds}",
        [run_id, key],
    )
    more = limit is not None and len(records) > limit
    return [
        {"key": key, "value": json_number(value, is_nan), "timestamp": timestamp, "step": step}
        for value, is_nan, timestamp, step in (records[:limit] if more else records)
    ], more


def page_token(offset: int) -> str:
    """Return the token of the page that begins there, as MLflow makes it."""
    return base64.b64encode(json.dumps({"offset": offset}).encode()).decode()


def offset_of(token: str) -> int:
    """Return the offset of a page. Raises ValueError for an invalid page token."""
    document = json.loads(base64.b64decode(token, validate=True))
    offset = document["offset"] if isinstance(document, dict) and "offset" in document else None
    if type(offset) is not int or not 0 <= offset < 1 << 40:
        raise ValueError("no offset")
    return offset
