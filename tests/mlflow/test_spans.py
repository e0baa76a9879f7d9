"""Spans by OpenTelemetry, as unmodified clients send them: into the own project, and no other."""

import gzip
import json
import os
import secrets
import subprocess
import sys
from typing import Any

import httpx
import pytest

from portal.api.mlflow.request_checks import LARGEST_JSON
from tests.tracking import Rest, TrackingPortal

pytestmark = pytest.mark.postgres

_EXPERIMENT = "x-mlflow-experiment-id"
# The real client in a process of its own; it says what it found.
_TRACED = """
import json, mlflow
with mlflow.start_span("outer") as outer:
    outer.set_attributes({"note": "a word to find"})
    with mlflow.start_span("inner"):
        pass
client = mlflow.MlflowClient()
(own,) = [one.experiment_id for one in client.search_experiments() if one.name == "Default"]
found = client.search_traces(
    locations=[own], filter_string="trace.text LIKE '%a word to find%'", flush=True
)
print(json.dumps([sorted(span.name for span in one.data.spans) for one in found]))
"""


def _spans(trace: str, name: str = "a span") -> bytes:
    span = {
        "traceId": trace,
        "spanId": secrets.token_hex(8),
        "name": name,
        "startTimeUnixNano": "1700000000000000000",
        "endTimeUnixNano": "1700000001000000000",
    }
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode()


def _send(rest: Rest, body: bytes, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return rest.call(
        "POST", "/v1/traces", content=body, headers={"content-type": "application/json"} | named
    )


def _names(rest: Rest, trace: str) -> list[str]:
    answer = rest.call("GET", "/api/3.0/mlflow/traces/get", params={"trace_id": f"tr-{trace}"})
    if answer.status_code == 404:
        return []
    spans: Any = answer.json()["trace"].get("spans", [])
    return [span["name"] for span in spans]


@pytest.mark.thorough
def test_an_unmodified_client_finds_its_spans_by_their_text(tracking: TrackingPortal) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _TRACED],
        env={
            "PATH": os.environ["PATH"],
            "HOME": os.environ.get("HOME", "/"),
            "MLFLOW_TRACKING_URI": tracking.uri("alice"),
            "MLFLOW_TRACKING_TOKEN": tracking.portal.tokens["alice"],
            "MLFLOW_DISABLE_TELEMETRY": "true",
        },
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [["inner", "outer"]], done.stderr


@pytest.mark.parametrize("packed", [False, True])
def test_spans_arrive_plain_and_packed(tracking: TrackingPortal, packed: bool) -> None:
    rest = tracking.client("alice")
    trace, own = secrets.token_hex(16), rest.new_experiment(f"spans {packed}")
    body, more = _spans(trace), {}
    if packed:
        body, more = gzip.compress(body), {"content_encoding": "gzip"}
    answer = _send(rest, body, **{_EXPERIMENT: own}, **more)
    assert answer.status_code == 200, answer.text
    assert _names(rest, trace) == ["a span"]


def test_spans_do_not_reach_another_project(tracking: TrackingPortal) -> None:
    alice, charlie = tracking.client("alice"), tracking.client("charlie")
    theirs, own = alice.new_experiment("theirs of spans"), charlie.new_experiment("of spans")
    their_run, trace = alice.new_run(theirs), secrets.token_hex(16)
    assert _send(alice, _spans(trace, "theirs"), **{_EXPERIMENT: theirs}).status_code == 200
    for headers in (
        {_EXPERIMENT: theirs},
        {_EXPERIMENT: "987654"},
        {_EXPERIMENT: own, "x-mlflow-run-id": their_run},
        {_EXPERIMENT: own, "x-mlflow-run-id": "0" * 32},
    ):
        answer = _send(charlie, _spans(secrets.token_hex(16)), **headers)
        assert answer.status_code == 404, (headers, answer.text)
        assert answer.json()["error_code"] == "RESOURCE_DOES_NOT_EXIST"
    # A trace that somebody else has is neither read nor written, whatever the answer.
    _send(charlie, _spans(trace, "mine"), **{_EXPERIMENT: own})
    assert _names(alice, trace) == ["theirs"]
    assert _names(charlie, trace) == []


def test_bodies_that_are_too_much_or_nothing_are_refused(tracking: TrackingPortal) -> None:
    rest = tracking.client("alice")
    own = {_EXPERIMENT: rest.new_experiment("refused spans")}
    bomb = gzip.compress(bytes(LARGEST_JSON + 1))
    for body, headers, status in (
        (_spans("ab" * 16), {}, 400),
        (b"not spans", own, 400),
        (b"not packed", own | {"content_encoding": "gzip"}, 400),
        (b"", own | {"content_encoding": "br"}, 415),
        (bomb, own | {"content_encoding": "gzip"}, 413),
    ):
        answer = _send(rest, body, **headers)
        assert answer.status_code == status, (headers, answer.text)
