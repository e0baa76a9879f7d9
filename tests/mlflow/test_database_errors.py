"""No message of a database reaches a client: no statement, no table, no column."""

import contextlib
import json
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.tracking import TrackingPortal

pytestmark = pytest.mark.postgres

Request = tuple[str, str, dict[str, Any]]
_V2, _V3 = "/api/2.0/mlflow", "/api/3.0/mlflow"
_LEAK = re.compile(
    r"\[SQL|sqlite|psycopg|sqlalche|select |insert into|update \w+ set|delete from|"
    r"experiments\.|runs\.\w+_|_uuid|no such|constraint|relation \"|int too large|"
    r"traceback|Background on|surrogates|recursion|variables",
    re.IGNORECASE,
)
_HUGE = 1 << 64
# Values that a database refuses in its own words.
_BAD = {
    "number of 65 bits": _HUGE,
    "negative number of 65 bits": -_HUGE,
    "half a surrogate pair": "\ud800",
    "zero": "a\0b",
    "long text": "x" * 200_000,
}


def writes(run: str, bad: Any) -> Iterator[Request]:
    """Requests that write a bad value."""
    yield "POST", f"{_V2}/experiments/create", {"name": bad}
    yield (
        "POST",
        f"{_V2}/experiments/set-experiment-tag",
        {
            "experiment_id": "0",
            "key": "k",
            "value": bad,
        },
    )
    yield "POST", f"{_V2}/registered-models/create", {"name": bad, "description": bad}
    yield "POST", f"{_V2}/registered-models/set-tag", {"name": "m", "key": "k", "value": bad}
    yield "GET", f"{_V2}/registered-models/get", {"name": bad}
    yield "GET", f"{_V2}/model-versions/get", {"name": "m", "version": bad}
    yield "POST", f"{_V2}/runs/create", {"experiment_id": "0", "start_time": bad}
    yield "POST", f"{_V2}/runs/update", {"run_id": run, "status": "RUNNING", "end_time": bad}
    yield (
        "POST",
        f"{_V2}/runs/log-metric",
        {
            "run_id": run,
            "key": "k",
            "value": 1,
            "timestamp": 1,
            "step": bad,
        },
    )
    yield "POST", f"{_V2}/runs/set-tag", {"run_id": run, "key": "k", "value": bad}
    yield "POST", f"{_V2}/runs/search", {"experiment_ids": ["0"], "filter": f"start_time > {bad}"}
    yield "POST", f"{_V2}/runs/search", {"experiment_ids": [str(bad)]}


def searches(run: str, bad: Any) -> Iterator[Request]:
    """Requests that look for a bad value."""
    yield (
        "POST",
        f"{_V2}/runs/search",
        {
            "experiment_ids": ["0"],
            "filter": f"attributes.end_time >= {bad} and run_id != 'x'",
            "order_by": ["attributes.`end_time`"],
        },
    )
    yield (
        "POST",
        f"{_V2}/logged-models/search",
        {
            "experiment_ids": ["0"],
            "filter": f"creation_timestamp > {bad}",
        },
    )
    yield "POST", f"{_V2}/logged-models", {"experiment_id": "0", "name": bad}
    yield "GET", f"{_V2}/experiments/search", {"filter": f"creation_time > {bad}"}
    yield "GET", f"{_V2}/model-versions/search", {"filter": f"version_number > {bad}"}
    yield (
        "POST",
        f"{_V2}/runs/log-inputs",
        {
            "run_id": run,
            "datasets": [
                {"dataset": {"name": bad, "digest": bad, "source_type": bad, "source": bad}}
            ],
        },
    )


def traces(run: str, bad: Any) -> Iterator[Request]:
    """Requests for traces and datasets with a bad value."""
    yield (
        "POST",
        f"{_V3}/traces",
        {
            "trace": {
                "trace_info": {
                    "trace_id": "tr-1",
                    "request_time": "2026-01-01T00:00:00Z",
                    "execution_duration": f"{bad}s",
                    "trace_location": {
                        "type": "MLFLOW_EXPERIMENT",
                        "mlflow_experiment": {"experiment_id": "0"},
                    },
                    "tags": {"k": bad},
                }
            }
        },
    )
    yield (
        "POST",
        f"{_V3}/traces/search",
        {
            "locations": [
                {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": "0"}}
            ],
            "filter": f"timestamp_ms > {bad}",
        },
    )
    yield (
        "POST",
        f"{_V3}/traces/delete-traces",
        {
            "experiment_id": "0",
            "max_timestamp_millis": bad,
        },
    )
    yield "POST", f"{_V3}/datasets/create", {"name": bad, "tags": bad, "experiment_ids": ["0"]}
    yield (
        "GET",
        f"{_V2}/metrics/get-history",
        {
            "run_id": run,
            "metric_key": "k",
            "max_results": bad,
        },
    )


def requests(run: str, bad: Any) -> Iterator[Request]:
    """All requests that carry a bad value to where MLflow hands it to the database."""
    for kind in (writes, searches, traces):
        yield from kind(run, bad)


def words_of(answer: httpx.Response) -> str:
    """All that an error says, but for the name of a field that every error of MLflow has."""
    return answer.text.replace('"sqlstate":', "")


def send(client: httpx.Client, method: str, path: str, fields: dict[str, Any]) -> httpx.Response:
    """Send a request; a query has the same fields as text."""
    if method == "POST":
        return client.post(
            path, content=json.dumps(fields), headers={"content-type": "application/json"}
        )
    query = {name: str(value).encode(errors="surrogatepass") for name, value in fields.items()}
    return client.get(path, params={name: value[:3_000] for name, value in query.items()})


@pytest.mark.thorough
@pytest.mark.parametrize("kind", _BAD)
def test_bad_values_are_refused_without_the_databases_words(
    tracking: TrackingPortal, kind: str
) -> None:
    rest = tracking.client("alice")
    rest.call("POST", "registered-models/create", json={"name": "m"})
    leaks = {}
    for method, path, fields in requests(rest.new_run(), _BAD[kind]):
        answer = send(rest.http, method, path, fields)
        if answer.status_code >= 400 and _LEAK.search(words_of(answer)):
            leaks[f"{method} {path} {answer.status_code}"] = answer.text[:300]
    assert not leaks


def test_more_values_than_a_statement_takes(tracking: TrackingPortal) -> None:
    rest = tracking.client("alice")
    many = [str(number) for number in range(300_000)]
    for path, fields in (
        (f"{_V2}/runs/search", {"experiment_ids": many, "filter": "params.`a b` = 'x'"}),
        (f"{_V2}/runs/search", {"experiment_ids": many, "filter": "run_id IN ('a') "}),
        (f"{_V2}/logged-models/search", {"experiment_ids": many}),
        (f"{_V3}/traces/delete-traces", {"experiment_id": "0", "request_ids": many}),
        (f"{_V3}/traces/batchGetInfos", {"trace_ids": many}),
    ):
        answer = send(rest.http, "POST", path, fields)
        assert answer.status_code < 500, (path, answer.status_code, answer.text[:300])
        assert answer.status_code == 200 or not _LEAK.search(words_of(answer)), answer.text[:300]


def test_a_name_that_is_taken_is_refused_in_words(tracking: TrackingPortal) -> None:
    rest = tracking.client("alice")
    experiment = rest.new_experiment("taken-1")
    other = rest.new_experiment("taken-2")
    for name in ("taken-1", "taken-2"):
        rest.post("registered-models/create", {"name": name})
    for path, body, kind in (
        ("experiments/create", {"name": "taken-1"}, "experiment"),
        ("experiments/update", {"experiment_id": other, "new_name": "taken-1"}, "experiment"),
        ("registered-models/create", {"name": "taken-1"}, "registered model"),
        (
            "registered-models/rename",
            {"name": "taken-1", "new_name": "taken-2"},
            "registered model",
        ),
    ):
        answer = rest.call("POST", path, json=body)
        assert answer.status_code == 400, (path, answer.text)
        assert not _LEAK.search(words_of(answer)), answer.text
        problem = answer.json()
        assert problem["error_code"] == "RESOURCE_ALREADY_EXISTS", (path, problem)
        message = problem["message"].lower()
        assert kind in message, (path, problem)
        assert "already" in message, (path, problem)
    assert rest.get("experiments/get", experiment_id=experiment)["experiment"]["name"] == "taken-1"


@contextlib.contextmanager
def locked(tracking: TrackingPortal) -> Iterator[None]:
    """Hold the lock under which MLflow's tables are written."""
    file = tracking.portal.installation.data_dir / "mlflow.db"
    connection = sqlite3.connect(file, isolation_level=None)
    try:
        connection.execute("BEGIN EXCLUSIVE")
        yield
    finally:
        connection.close()


@pytest.mark.slow
def test_a_locked_database_is_not_described(tracking: TrackingPortal) -> None:
    if not (tracking.portal.installation.data_dir / "mlflow.db").exists():
        pytest.skip("not on SQLite")
    rest = tracking.client("alice")
    rest.new_run()
    with locked(tracking):
        answers = [
            rest.call("POST", "experiments/create", json={"name": "locked"}),
            rest.call("POST", "runs/create", json={"experiment_id": "0"}),
        ]
    for answer in answers:
        assert answer.status_code >= 500, answer.text
        assert not _LEAK.search(words_of(answer)), answer.text


@pytest.mark.slow
def test_a_missing_file_is_not_created_anew(tracking: TrackingPortal, tmp_path: Path) -> None:
    file = tracking.portal.installation.data_dir / "mlflow.db"
    if not file.exists():
        pytest.skip("not on SQLite")
    rest = tracking.client("alice")
    experiment = rest.new_experiment("before")
    names = [path.name for path in file.parent.glob("mlflow.db*")]
    for name in names:
        (file.parent / name).rename(tmp_path / name)
    body = {"experiment_id": experiment, "key": "k", "value": "v"}
    try:
        answers = [
            rest.call("POST", "experiments/create", json={"name": "lost"}),
            rest.call("POST", "runs/create", json={"experiment_id": experiment}),
            rest.call("POST", "experiments/set-experiment-tag", json=body),
        ]
        assert not file.exists()
    finally:
        for name in names:
            (tmp_path / name).rename(file.parent / name)
    for answer in answers:
        assert answer.status_code == 503, answer.text
    assert any("mlflow.db is missing" in answer.text for answer in answers)
    assert rest.new_experiment("after")
