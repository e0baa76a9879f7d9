"""Frequent calls of training, answered from the tables, even while MLflow is down.

Each receives a request and returns the response, or raises Unusual to leave it to MLflow.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from portal.api.mlflow.answers import FullResponse, answer
from portal.experiments.adapters.mlflow import batches, responses, runs, search_filters, writes
from portal.experiments.adapters.mlflow.batches import UnsupportedRequest
from portal.experiments.adapters.mlflow.curves import curves_of

_DONE = answer({})
_MOST_RUNS = 50_000
_MOST_CURVES = 100
_MOST_POINTS = 2_500
_DEFAULT_POINTS = 320
_DEFAULT_RUNS = 1_000


@dataclass(frozen=True)
class TrackingRequest:
    """A request: project, query pairs, JSON and size of the body."""

    project_id: str
    query: list[tuple[str, str]]
    content: dict[str, Any]
    size: int

    def one(self, name: str) -> str | None:
        """Return a single-valued query parameter. Raises Unusual."""
        values = [value for key, value in self.query if key == name]
        if len(values) > 1:
            raise UnsupportedRequest
        return values[0] if values else None


def _record(tracking_request: TrackingRequest, batch: batches.Batch) -> FullResponse:
    writes.record(tracking_request.project_id, batch)
    return _DONE


def log_metric(tracking_request: TrackingRequest) -> FullResponse:
    """Answer `runs/log-metric`."""
    return _record(tracking_request, batches.metric_of(tracking_request.content))


def log_batch(tracking_request: TrackingRequest) -> FullResponse:
    """Answer `runs/log-batch`."""
    return _record(
        tracking_request, batches.batch_of(tracking_request.content, tracking_request.size)
    )


def log_parameter(tracking_request: TrackingRequest) -> FullResponse:
    """Answer `runs/log-parameter`."""
    return _record(tracking_request, batches.param_of(tracking_request.content))


def set_tag(tracking_request: TrackingRequest) -> FullResponse:
    """Answer `runs/set-tag`."""
    return _record(tracking_request, batches.tag_of(tracking_request.content))


def create_run(tracking_request: TrackingRequest) -> FullResponse:
    """Answer `runs/create`."""
    return answer(
        {
            "run": runs.create_run(
                tracking_request.project_id, runs.new_run_of(tracking_request.content)
            )
        }
    )


def update_run(tracking_request: TrackingRequest) -> FullResponse:
    """Answer `runs/update`."""
    return answer(
        {"run_info": runs.update_run(tracking_request.project_id, tracking_request.content)}
    )


def _run_id(tracking_request: TrackingRequest) -> str:
    given = {"run_id": tracking_request.one("run_id"), "run_uuid": tracking_request.one("run_uuid")}
    return batches.run_id_of(given)


def get_run(tracking_request: TrackingRequest) -> FullResponse:
    """Answer `runs/get`."""
    values = responses.run_answer(tracking_request.project_id, _run_id(tracking_request))
    if values is None:
        raise UnsupportedRequest
    return answer({"run": values})


def _offset(token: object) -> int:
    if not token:
        return 0
    if not isinstance(token, str):
        raise UnsupportedRequest
    try:
        return responses.offset_of(token)
    except (ValueError, RecursionError) as error:
        raise UnsupportedRequest from error


def search_runs(tracking_request: TrackingRequest) -> FullResponse:
    """Answer `runs/search`. Unusual filters and orders are left to MLflow."""
    content = tracking_request.content
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
            isinstance(item, str) and item.isascii() and item.isdigit() and len(item) < 10
            for item in listed
        )
    ):
        raise UnsupportedRequest
    offset = _offset(content.get("page_token"))
    search = responses.Search(
        experiment_ids=sorted({int(item) for item in listed}),
        view=view or "ACTIVE_ONLY",
        limit=limit,
        offset=offset,
        conditions=search_filters.conditions_of(content.get("filter", "")),
        sort_fields=search_filters.sort_fields_of(content.get("order_by", [])),
    )
    rows, more = responses.search_runs(tracking_request.project_id, search)
    page: dict[str, Any] = {"runs": rows} if rows else {}
    if more:
        page["next_page_token"] = responses.page_token(offset + limit)
    return answer(page)


def get_history(tracking_request: TrackingRequest) -> FullResponse:
    """Answer `metrics/get-history`."""
    run_id, key, most = (
        _run_id(tracking_request),
        tracking_request.one("metric_key"),
        tracking_request.one("max_results"),
    )
    if not key or not runs.is_in_project(tracking_request.project_id, run_id):
        raise UnsupportedRequest
    limit = None
    if most is not None:
        if not (most.isascii() and most.isdigit() and int(most[:10]) > 0 and len(most) < 10):
            raise UnsupportedRequest
        limit = int(most)
    offset = _offset(tracking_request.one("page_token"))
    if limit is None and offset:
        raise UnsupportedRequest
    rows, more = responses.history(run_id, key, limit=limit, offset=offset)
    page: dict[str, Any] = {"metrics": rows} if rows else {}
    if more and limit is not None:
        page["next_page_token"] = responses.page_token(offset + limit)
    return answer(page)


def get_curves(tracking_request: TrackingRequest) -> FullResponse:
    """Answer `metrics/get-history-bulk-interval` with curves that keep minima and maxima."""
    run_ids = [value for key, value in tracking_request.query if key == "run_ids"]
    key, most = (
        tracking_request.one("metric_key"),
        tracking_request.one("max_results") or str(_DEFAULT_POINTS),
    )
    if (
        not key
        or not 0 < len(run_ids) <= _MOST_CURVES
        or not (most.isascii() and most.isdigit() and len(most) < 5)
        or not 0 < int(most) <= _MOST_POINTS
        or not {name for name, _ in tracking_request.query}
        <= {"run_ids", "metric_key", "max_results"}
        or not all(
            batches.RUN_ID.match(item) and runs.is_in_project(tracking_request.project_id, item)
            for item in run_ids
        )
    ):
        raise UnsupportedRequest
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
