"""The list of routes: each with a policy, and nobody gets past another's project by any of them.

Two projects hold one of everything. A stranger then sends, by every route and verb, the ids of the
other project, alone and beside own ones, and must be answered exactly as for ids nobody has.
"""

import itertools
import re
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from portal.api.mlflow.routes import READ, ROUTES, WRITE, MlflowRoute, route_of
from tests.tracking import Rest, TrackingPortal

_TRACE_INFO = {
    "trace_id": "",
    "trace_location": {
        "type": "MLFLOW_EXPERIMENT",
        "mlflow_experiment": {"experiment_id": ""},
    },
    "request_time": "2026-01-01T00:00:00Z",
    "state": "OK",
}


@dataclass(frozen=True)
class Things:
    """The ids of one of everything in a project."""

    experiment: str
    run: str
    model: str
    trace: str
    dataset: str
    registered: str
    artifact: str
    assessment: str = "a-0000"

    def of(self, name: str) -> str:
        """Return what belongs in a field of this name."""
        kinds = {
            "experiment_id": self.experiment,
            "run_id": self.run,
            "run_uuid": self.run,
            "source_run_id": self.run,
            "model_id": self.model,
            "trace_id": self.trace,
            "request_id": self.trace,
            "dataset_id": self.dataset,
            "name": self.registered,
            "artifact_path": self.artifact,
            "path": self.artifact,
            "assessment_id": self.assessment,
        }
        return kinds.get(name, "some")


def _make(rest: Rest, name: str) -> Things:
    experiment = rest.new_experiment(f"{name}-secret")
    run = rest.new_run(experiment)
    rest.post("runs/log-metric", {"run_id": run, "key": "m", "value": 1, "timestamp": 1})
    model = rest.post("logged-models", {"experiment_id": experiment, "name": f"{name}-model"})
    trace = "tr-" + run
    info = _TRACE_INFO | {
        "trace_id": trace,
        "trace_location": {
            "type": "MLFLOW_EXPERIMENT",
            "mlflow_experiment": {"experiment_id": experiment},
        },
    }
    rest.post("/api/3.0/mlflow/traces", {"trace": {"trace_info": info}})
    dataset = rest.post(
        "/api/3.0/mlflow/datasets/create",
        {"name": f"{name}-data", "experiment_ids": [experiment]},
    )
    rest.post("registered-models/create", {"name": f"{name}-registered"})
    uri = rest.get("runs/get", run_id=run)["run"]["info"]["artifact_uri"]
    artifact = f"{uri.removeprefix('mlflow-artifacts:/')}/{name}-file.txt"
    put = rest.call("PUT", f"/api/2.0/mlflow-artifacts/artifacts/{artifact}", content=b"secret")
    assert put.status_code in (200, 204), put.text
    return Things(
        experiment,
        run,
        model["model"]["info"]["model_id"],
        trace,
        dataset["dataset"]["dataset_id"],
        f"{name}-registered",
        artifact,
    )


_NOBODYS = Things(
    "987654",
    "0" * 32,
    "m-" + "0" * 32,
    "tr-" + "0" * 32,
    "d-" + "0" * 32,
    "nobody-registered",
    "workspaces/prj_00000000000000000000000000/1/x/file.txt",
)


def _fields(things: Things, own: Things) -> dict[str, Any]:
    """Return a body with every field that any route knows, naming `things`, or `own` where two."""
    source = f"mlflow-artifacts:/{things.artifact}"
    return {
        "experiment_id": things.experiment,
        "experiment_ids": [things.experiment, own.experiment],
        "run_id": things.run,
        "run_uuid": things.run,
        "source_run_id": things.run,
        "run_ids": [things.run],
        "model_id": things.model,
        "models": [{"model_id": things.model, "step": 0}],
        "trace_id": things.trace,
        "request_id": things.trace,
        "trace_ids": [things.trace],
        "request_ids": [things.trace],
        "dataset_id": things.dataset,
        "name": things.registered,
        "new_name": things.registered,
        "source": source,
        "version": "1",
        "alias": "champion",
        "stage": "Production",
        "key": "k",
        "value": "1",
        "timestamp": 1,
        "metric_key": "m",
        "max_results": 10,
        "path": things.artifact,
        "status": "FINISHED",
        "locations": [
            {
                "type": "MLFLOW_EXPERIMENT",
                "mlflow_experiment": {"experiment_id": things.experiment},
            }
        ],
        "metrics": [{"key": "m", "value": 1, "timestamp": 1, "step": 0}],
        "tags": [{"key": "k", "value": "v"}],
        "params": [{"key": "p", "value": "v"}],
    }


# The fields of calls that the portal answers itself, which leaves any other field to MLflow.
_NATIVE = {
    "log-metric": ("run_id", "key", "value", "timestamp"),
    "log-batch": ("run_id", "metrics", "params", "tags"),
    "log-parameter": ("run_id", "key", "value"),
    "set-tag": ("run_id", "key", "value"),
    "create": ("experiment_id", "tags"),
    "update": ("run_id", "status"),
    "get": ("run_id",),
    "search": ("experiment_ids", "max_results"),
    "get-history": ("run_id", "metric_key"),
    "get-history-bulk-interval": ("run_ids", "metric_key", "max_results"),
}


def _ask(
    rest: Rest, route: MlflowRoute, things: Things, own: Things, cited: Things, *, all_fields: bool
) -> str:
    """Send a request whose path names `things` and whose other fields name `cited`."""
    path = re.sub(r"<(?:path:)?(\w+)>", lambda match: things.of(match[1]), route.path)
    fields = _fields(cited, own)
    if not all_fields:
        known = _NATIVE[route.path.rpartition("/")[2]]
        fields = {name: value for name, value in fields.items() if name in known}
        fields["value"] = 1 if route.path.endswith("log-metric") else "1"
        fields = {name: value for name, value in fields.items() if name in known}
    if route.method == "GET":
        pairs = [
            (name, item)
            for name, value in fields.items()
            for item in (value if isinstance(value, list) else [value])
            if isinstance(item, str | int)
        ]
        answer = rest.call("GET", path, params=pairs)
    elif route.streams:
        answer = rest.call(route.method, path, content=b"x")
    else:
        answer = rest.call(route.method, path, json=fields)
    return f"{answer.status_code} {answer.text}"


def _anonymous(text: str, *worlds: Things) -> str:
    """Return an answer without the ids it was asked for, and without times and made ids."""
    known = {value for world in worlds for value in vars(world).values() if len(value) > 8}
    known |= {value.rpartition("/")[2] for value in known}
    for value in sorted(known, key=len, reverse=True):
        text = text.replace(value, "X")
    text = re.sub(r"prj_[0-9a-z]{26}", "P", text)
    text = re.sub(r"\b(m-|tr-|d-)?[0-9a-f]{32}\b", "I", text)
    return re.sub(r"\d+", "N", text)


@pytest.fixture(scope="session")
def worlds(tracking: TrackingPortal) -> tuple[Rest, Things, Things]:
    """Charlie's client, what is his, and what is Alice's."""
    charlie = tracking.client("charlie")
    return charlie, _make(charlie, "mine"), _make(tracking.client("alice"), "theirs")


def test_every_route_has_a_policy_and_is_found_by_its_own_address() -> None:
    for route in ROUTES:
        assert route.policy in (READ, WRITE)
        path = re.sub(r"<(?:path:)?(\w+)>", r"some-\1", route.path)
        assert route_of(route.method, path) is route, route
        assert (route.policy is READ) == (
            route.method == "GET"
            or route.path.endswith(("/search", "/get-latest-versions", "/batchGetInfos"))
            or route.path.endswith(("/search-datasets", "/traces/metrics", "-correlation"))
        ), route


def test_what_is_not_listed_is_not_there(tracking: TrackingPortal) -> None:
    rest = tracking.client("alice")
    for method, path in (
        ("POST", "/"),  # GET leads to the portal's own pages
        ("POST", "/graphql"),
        ("GET", "/api/3.0/mlflow/workspaces"),
        ("POST", "/api/3.0/mlflow/workspaces"),
        ("GET", "/api/3.0/mlflow/workspaces/default"),
        ("POST", "/ajax-api/3.0/jobs/"),
        ("POST", "/api/2.0/mlflow/artifacts/presigned-upload-url"),
        ("POST", "/ajax-api/2.0/mlflow/upload-artifact"),
        ("GET", "/get-artifact?path=x"),
        ("POST", "/ajax-api/2.0/mlflow/gateway-proxy"),
        ("POST", "/api/3.0/mlflow/webhooks"),
        ("GET", "/static-files/index.html"),
        ("TRACE", "/api/2.0/mlflow/runs/search"),
        ("GET", "/api/2.0/mlflow/runs/search/"),
        ("GET", "//api/2.0/mlflow/experiments/search"),
    ):
        answer = rest.call(method, path)
        assert answer.status_code in (404, 405), (method, path, answer.text)
        assert answer.json()["error_code"] == "ENDPOINT_NOT_FOUND"


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_ids_of_others_answer_like_ids_of_nobody(
    route: MlflowRoute, worlds: tuple[Rest, Things, Things]
) -> None:
    charlie, own, theirs = worlds
    for of_path, of_body in itertools.product((True, False), repeat=2):
        foreign = (theirs if of_path else own, theirs if of_body else own)
        nobody = (_NOBODYS if of_path else own, _NOBODYS if of_body else own)
        if not (of_path or of_body) or (of_path and not route.parameters):
            continue
        if route.parameters and not of_path:  # what it does to my own thing, it has done before
            _ask(charlie, route, own, own, _NOBODYS, all_fields=True)
        for all_fields in (True, False) if route.native else (True,):
            expected, actual = (
                _ask(charlie, route, things, own, cited, all_fields=all_fields)
                for things, cited in (nobody, foreign)
            )
            known = (own, theirs, _NOBODYS)
            assert _anonymous(actual, *known) == _anonymous(expected, *known), actual
            for name in ("theirs-secret", "theirs-model", "theirs-data", "theirs-file"):
                assert name not in actual.replace(theirs.artifact, ""), actual


def test_what_others_have_is_still_as_it_was(
    tracking: TrackingPortal, worlds: tuple[Rest, Things, Things]
) -> None:
    _, _, theirs = worlds
    alice = tracking.client("alice")
    run = alice.get("runs/get", run_id=theirs.run)["run"]
    assert run["info"]["status"] == "RUNNING"
    assert [metric["key"] for metric in run["data"]["metrics"]] == ["m"]
    assert {tag["key"] for tag in run["data"]["tags"]} == {"mlflow.runName"}
    assert alice.get("registered-models/get", name=theirs.registered)
    assert alice.call("GET", f"/api/2.0/mlflow-artifacts/artifacts/{theirs.artifact}").content == (
        b"secret"
    )
    assert alice.get(f"logged-models/{theirs.model}")["model"]["info"].get("tags", []) == []


def test_a_viewer_reads_and_a_narrow_token_stays_narrow(tracking: TrackingPortal) -> None:
    with tracking.portal.client("alice") as api:
        reading = api.post(
            "/tokens", json={"name": "r", "scopes": ["experiments:read"], "expires_in_days": 1}
        ).json()["token"]
        useless = api.post(
            "/tokens", json={"name": "u", "scopes": ["files:read"], "expires_in_days": 1}
        ).json()["token"]
    reader = tracking.client("alice", Authorization=f"Bearer {reading}")
    nobody = tracking.client("alice", Authorization=f"Bearer {useless}")
    for route in ROUTES:
        path = re.sub(r"<(?:path:)?(\w+)>", "x", route.path)
        if route.policy is WRITE:
            assert reader.call(route.method, path, json={}).status_code == 403, route
        assert nobody.call(route.method, path).status_code == 403, route


def test_garbage_is_a_clear_refusal(worlds: tuple[Rest, Things, Things]) -> None:
    charlie, own, _ = worlds
    deep = b'{"run_id":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    run, long = own.run.encode(), b"k" * 9_999
    json = {"content-type": "application/json"}
    for path, body in (
        ("runs/log-batch", deep),
        ("runs/log-batch", b'{"tags": ' + b'{"a":' * 5_000 + b"1" + b"}" * 5_000 + b"}"),
        ("runs/log-metric", b"not json"),
        ("runs/log-metric", b"[1]"),
        ("runs/log-metric", b'"text"'),
        ("runs/log-metric", b'{"run_id":"%s","key":"a\\u0000b","value":1,"timestamp":1}' % run),
        ("runs/log-metric", b'{"run_id":"%s","key":"\\ud800","value":1,"timestamp":1}' % run),
        ("runs/log-metric", b'{"run_id":"%s","key":"../x","value":1,"timestamp":1}' % run),
        ("runs/log-metric", b'{"run_id":"%s","key":"k","value":1e999,"timestamp":1}' % run),
        ("runs/log-metric", b'{"run_id":"%s","key":"k","value":1,"timestamp":1e30}' % run),
        ("runs/log-metric", b'{"run_id":"%s","key":"%s","value":1,"timestamp":1}' % (run, long)),
        ("runs/log-parameter", b'{"run_id":"%s","key":"k","value":{"a":1}}' % run),
        ("runs/log-batch", b'{"run_id":"%s","metrics":[1,2]}' % run),
        ("runs/create", b'{"experiment_id":"9999999999999999999999"}'),
        ("runs/search", b'{"experiment_ids":["9999999999999999999999"],"filter":"params.a = 1"}'),
        ("runs/search", b'{"experiment_ids":["1"],"filter":"params.a = \'"}'),
        ("runs/search", b'{"experiment_ids":["1"],"max_results":-1}'),
        ("runs/search", b'{"experiment_ids":["1"],"page_token":"////"}'),
        ("experiments/create", b'{"name":""}'),
        ("experiments/create", b'{"name":"x","artifact_location":"file:///etc"}'),
        ("model-versions/create", b'{"name":"mine-registered","source":"file:///etc"}'),
        ("model-versions/create", b'{"name":"mine-registered","source":"s3://bucket/x"}'),
        ("model-versions/create", b'{"name":"mine-registered","source":"http://127.0.0.1/x"}'),
    ):
        answer = charlie.call("POST", path, content=body, headers=json)
        assert 400 <= answer.status_code < 500, (path, body[:120], answer.text)
        assert answer.json()["error_code"], answer.text
    large = charlie.call("POST", "runs/log-batch", content=b" " * 25_000_000)
    assert large.status_code == 413


@pytest.mark.thorough
def test_junk_in_any_route_is_no_fault_of_the_server(
    worlds: tuple[Rest, Things, Things],
) -> None:
    charlie, own, _ = worlds
    names = sorted(_fields(own, own))
    faults = []
    for route in ROUTES:
        if route.streams or "mpu" in route.path or route.method == "GET":
            continue
        path = re.sub(r"<(?:path:)?(\w+)>", lambda match: _NOBODYS.of(match[1]), route.path)
        junk: Any
        for junk in ("x" * 300, [1, "x"], {"a": {"b": []}}):
            answer = charlie.call(route.method, path, json=dict.fromkeys(names, junk))
            if answer.status_code >= 500:
                faults.append((route.method, route.path, junk, answer.text[:200]))
    assert not faults


def test_paths_that_lead_elsewhere_are_refused(worlds: tuple[Rest, Things, Things]) -> None:
    charlie, own, theirs = worlds
    base = own.artifact.rpartition("/")[0]
    for tail in (
        f"{base}/../../../{theirs.artifact}",
        f"{base}/%2e%2e/%2e%2e/x",
        f"{base}/%252e%252e/x",
        f"{base}/..%2fx",
        f"{base}/x%00y",
        f"{base}/..%5cx",
        theirs.artifact,
        "workspaces",
        "/etc/passwd",
    ):
        url = httpx.URL(f"{charlie.http.base_url}api/2.0/mlflow-artifacts/artifacts/{tail}")
        request = charlie.http.build_request("GET", url)
        request.url = request.url.copy_with(raw_path=request.url.raw_path)
        assert charlie.http.send(request).status_code in (400, 404, 405), tail
