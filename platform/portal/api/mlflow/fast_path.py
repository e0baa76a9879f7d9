"""The calls that training makes all the time, answered from the tables; MLflow may be down.

Each takes what was sent and returns the answer, or raises Unusual to leave it to MLflow.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from portal.api.mlflow.answers import FullResponse, answer
from portal.experiments.adapters.mlflow import batches, responses, runs, search_filters, writes
from portal.experiments.adapters.mlflow.batches import Unusual
from portal.experiments.adapters.mlflow.curves import curves_of

_DONE = answer({})
_MOST_RUNS = 50_000
_MOST_CURVES = 100
_MOST_POINTS = 2_500
_DEFAULT_POINTS = 320
_DEFAULT_RUNS = 1_000


@dataclass(frozen=True)
class TrackingRequest:
    """A request: the project, the pairs of its query, its JSON and the size of its body."""

    project_id: str
    query: list[tuple[str, str]]
    content: dict[str, Any]
    size: int

    def one(self, name: str) -> str | None:
        """Return a parameter of the query that may come once; raises Unusual."""
        found = [value for key, value in self.query if key == name]
        if len(found) > 1:
            raise Unusual
        return found[0] if found else None


def _record(asked: TrackingRequest, batch: batches.Batch) -> FullResponse:
    writes.record(asked.project_id, batch)
    return _DONE


def log_metric(asked: TrackingRequest) -> FullResponse:
    """Answer `runs/log-metric`."""
    return _record(asked, batches.metric_of(asked.content))


def log_batch(asked: TrackingRequest) -> FullResponse:
    """Answer `runs/log-batch`."""
    return _record(asked, batches.batch_of(asked.content, asked.size))


def log_parameter(asked: TrackingRequest) -> FullResponse:
    """Answer `runs/log-parameter`."""
    return _record(asked, batches.param_of(asked.content))


def set_tag(asked: TrackingRequest) -> FullResponse:
    """Answer `runs/set-tag`."""
    return _record(asked, batches.tag_of(asked.content))


def create_run(asked: TrackingRequest) -> FullResponse:
    """Answer `runs/create`."""
    return answer({"run": runs.create_run(asked.project_id, runs.new_run_of(asked.content))})


def update_run(asked: TrackingRequest) -> FullResponse:
    """Answer `runs/update`."""
    return answer({"run_info": runs.update_run(asked.project_id, asked.content)})


def _run_id(asked: TrackingRequest) -> str:
    given = {"run_id": asked.one("run_id"), "run_uuid": asked.one("run_uuid")}
    return batches.run_id_of(given)


def get_run(asked: TrackingRequest) -> FullResponse:
    """Answer `runs/get`."""
    found = responses.run_answer(asked.project_id, _run_id(asked))
    if found is None:
        raise Unusual
    return answer({"run": found})


def _offset(token: object) -> int:
    if not token:
        return 0
    if not isinstance(token, str):
        raise Unusual
    try:
        return responses.offset_of(token)
    except (ValueError, RecursionError) as error:
        raise Unusual from error


def search_runs(asked: TrackingRequest) -> FullResponse:
    """Answer `runs/search`; a filter or order that is not written plainly is MLflow's to read."""
    content = asked.content
    known = {"experiment_ids", "filter", "run_view_type", "max_results", "order_by", "page_token"}
    limit, view = content.get("max_results", _DEFAULT_RUNS), content.get("run_view_type")
    listed = content.get("experiment_ids")
    if (
        not content.keys() <= known
        or not isinstance(content.get("filter", ""), str)
        or not isinstance(content.get("order_by", []), list)
        or type(limit) is not int
        or not 0 < limit <= _MOST_RUNS
        or view not in (None, "ACTIVE_ONLY", "DELETED_ONLY", "ALL")
        or not isinstance(listed, list)
        or not all(
            isinstance(one, str) and one.isascii() and one.isdigit() and len(one) < 10
            for one in listed
        )
    ):
        raise Unusual
    offset = _offset(content.get("page_token"))
    wanted = responses.Search(
        experiment_ids=sorted({int(one) for one in listed}),
        view=view or "ACTIVE_ONLY",
        limit=limit,
        offset=offset,
        conditions=search_filters.conditions_of(content.get("filter", "")),
        sortings=search_filters.sortings_of(content.get("order_by", [])),
    )
    found, more = responses.found_runs(asked.project_id, wanted)
    page: dict[str, Any] = {"runs": found} if found else {}
    if more:
        page["next_page_token"] = responses.page_token(offset + limit)
    return answer(page)


def get_history(asked: TrackingRequest) -> FullResponse:
    """Answer `metrics/get-history`."""
    run_id, key, most = _run_id(asked), asked.one("metric_key"), asked.one("max_results")
    if not key or not runs.is_ours(asked.project_id, run_id):
        raise Unusual
    limit = None
    if most is not None:
        if not (most.isascii() and most.isdigit() and int(most[:10]) > 0 and len(most) < 10):
            raise Unusual
        limit = int(most)
    offset = _offset(asked.one("page_token"))
    if limit is None and offset:
        raise Unusual
    found, more = responses.history(run_id, key, limit=limit, offset=offset)
    page: dict[str, Any] = {"metrics": found} if found else {}
    if more and limit is not None:
        page["next_page_token"] = responses.page_token(offset + limit)
    return answer(page)


def get_curves(asked: TrackingRequest) -> FullResponse:
    """Answer `metrics/get-history-bulk-interval`: curves for a chart, minima and maxima kept."""
    run_ids = [value for key, value in asked.query if key == "run_ids"]
    key, most = asked.one("metric_key"), asked.one("max_results") or str(_DEFAULT_POINTS)
    if (
        not key
        or not 0 < len(run_ids) <= _MOST_CURVES
        or not (most.isascii() and most.isdigit() and len(most) < 5)
        or not 0 < int(most) <= _MOST_POINTS
        or not {name for name, _ in asked.query} <= {"run_ids", "metric_key", "max_results"}
        or not all(
            batches.RUN_ID.match(one) and runs.is_ours(asked.project_id, one) for one in run_ids
        )
    ):
        raise Unusual
    curves = curves_of(run_ids, [key], most_points=int(most), axis="step")
    points = [
        {
            "key": key,
            "value": responses.json_number(point.value, point.value != point.value),
            "timestamp": point.timestamp_ms,
            "step": point.step,
            "run_id": curve.run_id,
        }
        for curve in curves
        for point in curve.points
    ]
    return answer({"metrics": points} if points else {})


_V2 = "/api/2.0/mlflow"
NATIVE: dict[tuple[str, str], Callable[[TrackingRequest], FullResponse]] = {
    ("POST", f"{_V2}/runs/log-metric"): log_metric,
    ("POST", f"{_V2}/runs/log-batch"): log_batch,
    ("POST", f"{_V2}/runs/log-parameter"): log_parameter,
    ("POST", f"{_V2}/runs/set-tag"): set_tag,
    ("POST", f"{_V2}/runs/create"): create_run,
    ("POST", f"{_V2}/runs/update"): update_run,
    ("GET", f"{_V2}/runs/get"): get_run,
    ("POST", f"{_V2}/runs/search"): search_runs,
    ("GET", f"{_V2}/metrics/get-history"): get_history,
    ("GET", f"{_V2}/metrics/get-history-bulk-interval"): get_curves,
    ("GET", "/ajax-api/2.0/mlflow/metrics/get-history-bulk-interval"): get_curves,
}
