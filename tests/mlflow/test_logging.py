"""What training logs all the time: taken in by the portal itself, never twice, never lost."""

import math
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.tracking import Rest, TrackingPortal

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def alice(tracking: TrackingPortal) -> Rest:
    return tracking.client("alice")


def _points(count: int, key: str = "loss", start: int = 0) -> list[dict[str, object]]:
    return [
        {"key": key, "value": step / 7, "timestamp": 1_700_000_000_000 + step, "step": step}
        for step in range(start, start + count)
    ]


def _curve(client: Rest, run: str, key: str = "loss") -> list[dict[str, object]]:
    history = client.get("metrics/get-history", run_id=run, metric_key=key)
    listed: list[dict[str, object]] = history.get("metrics", [])
    return listed


def test_a_run_reads_back_as_it_was_logged(alice: Rest) -> None:
    run = alice.new_run(alice.new_experiment("reads-back"))
    alice.post("runs/log-metric", {"run_id": run, "key": "loss", "value": 0.5, "timestamp": 1})
    alice.post("runs/log-parameter", {"run_id": run, "key": "lr", "value": "0.1"})
    alice.post("runs/set-tag", {"run_id": run, "key": "mlflow.runName", "value": "first"})
    batch = {"metrics": _points(3), "params": [{"key": "a", "value": "b"}], "tags": []}
    alice.post("runs/log-batch", {"run_id": run, **batch})
    alice.post("runs/update", {"run_id": run, "status": "FINISHED", "end_time": 99})
    stored = alice.get("runs/get", run_id=run)["run"]
    info, data = stored["info"], stored["data"]
    assert (info["status"], info["end_time"], info["run_name"]) == ("FINISHED", 99, "first")
    assert {param["key"]: param["value"] for param in data["params"]} == {"lr": "0.1", "a": "b"}
    assert data["metrics"] == [_points(3)[-1]]
    assert len(_curve(alice, run)) == 4
    listed = alice.post("runs/search", {"experiment_ids": [info["experiment_id"]]})["runs"]
    assert [experiment["info"]["run_id"] for experiment in listed] == [run]
    filtered = {"experiment_ids": [info["experiment_id"]], "filter": "params.lr = '0.1'"}
    assert alice.post("runs/search", filtered)["runs"] == listed


def test_the_person_whose_token_logs_a_run_is_its_author(alice: Rest) -> None:
    experiment = alice.new_experiment("authors")
    # The second is left to MLflow's own server: it has a field that the portal does not read.
    for extra in ({}, {"unread": 1}):
        body = {
            "experiment_id": experiment,
            "user_id": "mallory",
            "start_time": 1,
            "tags": [{"key": "mlflow.user", "value": "root"}],
        }
        run = alice.post("runs/create", body | extra)["run"]
        shown = alice.get("runs/get", run_id=run["info"]["run_id"])["run"]
        for info in (run["info"], shown["info"]):
            assert info["user_id"] == "alice@example.org"
        tags = {tag["key"]: tag["value"] for tag in shown["data"]["tags"]}
        assert tags["mlflow.user"] == "root"


def test_numbers_that_are_none_come_back_as_they_were(alice: Rest) -> None:
    run = alice.new_run()
    for step, value in enumerate(("NaN", "Infinity", "-Infinity")):
        body = {"run_id": run, "key": "odd", "value": value, "timestamp": step, "step": step}
        alice.post("runs/log-metric", body)
    assert [point["value"] for point in _curve(alice, run, "odd")] == [
        "NaN",
        "Infinity",
        "-Infinity",
    ]
    latest = alice.get("runs/get", run_id=run)["run"]["data"]["metrics"]
    assert float(latest[0]["value"]) == -math.inf


def test_a_batch_that_is_repeated_doubles_no_point(alice: Rest) -> None:
    run = alice.new_run()
    body = {
        "run_id": run,
        "metrics": _points(200),
        "params": [{"key": "lr", "value": "1"}],
        "tags": [{"key": "t", "value": "1"}],
    }
    for _ in range(3):
        alice.post("runs/log-batch", body)
    assert len(_curve(alice, run)) == 200


def test_two_writers_of_one_run_lose_nothing(tracking: TrackingPortal, alice: Rest) -> None:
    run = alice.new_run()
    keys = [f"m{number}" for number in range(20)]

    def write(part: int) -> None:
        client = tracking.client("alice")
        for round_ in range(10):
            order = keys if part == 0 else keys[::-1]
            step = round_ * 2 + part
            points = [point for key in order for point in _points(1, key, step)]
            client.post("runs/log-batch", {"run_id": run, "metrics": points})

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, (0, 1)))
    assert [point["step"] for point in _curve(alice, run, "m7")] == list(range(20))
    data = alice.get("runs/get", run_id=run)["run"]["data"]
    assert {(metric["key"], metric["step"]) for metric in data["metrics"]} == {
        (key, 19) for key in keys
    }


def test_a_chart_of_a_long_curve_keeps_its_peaks(alice: Rest) -> None:
    run = alice.new_run()
    points = _points(5_000)
    points[3_210]["value"], points[1_234]["value"] = 1e6, -1e6
    for start in range(0, 5_000, 1_000):
        alice.post("runs/log-batch", {"run_id": run, "metrics": points[start : start + 1_000]})
    sampled = alice.get(
        "/ajax-api/2.0/mlflow/metrics/get-history-bulk-interval",
        run_ids=run,
        metric_key="loss",
        max_results=100,
    )["metrics"]
    values = [point["value"] for point in sampled]
    assert len(values) <= 110
    assert (max(values), min(values)) == (1e6, -1e6)


@pytest.mark.thorough
def test_what_was_acknowledged_survives_a_crash_and_mlflow_may_be_away(
    tracking: TrackingPortal, alice: Rest
) -> None:
    run = alice.new_run()
    tracking.server.signal(signal.SIGKILL)
    tracking.server.wait()
    alice.post("runs/log-batch", {"run_id": run, "metrics": _points(500)})
    # As `mlflow.log_metrics` sends them: each says once more which run it is of.
    told_twice = [point | {"run_id": run} for point in _points(20, "accuracy")]
    alice.post("runs/log-batch", {"run_id": run, "metrics": told_twice})
    tracking.portal.kill()
    tracking.portal.restart()
    again = tracking.client("alice")
    assert len(_curve(again, run)) == 500
    assert len(_curve(again, run, "accuracy")) == 20
    refused = again.call("GET", "registered-models/search")
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "2")
    assert refused.json()["error_code"] == "TEMPORARILY_UNAVAILABLE"
    assert tracking.portal.client("alice").get("/projects").status_code == 200
    tracking.server = tracking.start_server()
    assert again.call("GET", "registered-models/search").status_code == 200


@pytest.mark.thorough
def test_a_revoked_token_is_refused_within_seconds(tracking: TrackingPortal) -> None:
    with tracking.portal.client("alice") as api:
        made = api.post(
            "/tokens", json={"name": "short", "scopes": ["experiments:read"], "expires_in_days": 1}
        ).json()
        client = tracking.client("alice", Authorization=f"Bearer {made['token']}")
        assert client.call("GET", "experiments/get?experiment_id=0").status_code == 200
        refused = client.call("POST", "experiments/create", json={"name": "no"})
        assert refused.status_code == 403
        assert "experiments:write" in refused.json()["message"]
        api.delete(f"/tokens/{made['id']}")
        revoked = time.monotonic()
        while client.call("GET", "experiments/get?experiment_id=0").status_code == 200:
            assert time.monotonic() - revoked < 5
            time.sleep(0.1)
