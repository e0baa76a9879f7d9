"""A warm former revision answers only where its endpoint lets it, and every such answer says so."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import duckdb
import httpx
import pytest

from slipway.schemas.serving import RevisionRoute
from tests.workers.machines import eventually
from tests.workers.serving import Plane, Replica, endpoint, linear_model, plane

_ROW = [[1, 2, 3, 4]]


def _served(dataplane: Plane, *, is_standby: bool = True, **changes: Any) -> Replica:
    """Serve version 2, with version 1 warm at weight 0; returns the replica of version 2."""
    former = dataplane.replica()
    current = dataplane.replica(
        "rep-2",
        revision_id="rev-2",
        model_version="2",
        model_dir=str(linear_model(dataplane.folder / "models" / "second", slope=3.0)),
    )
    routes = [
        RevisionRoute(
            id=f"rev-{version}",
            model="linear",
            model_version=version,
            weight=weight,
            is_standby=is_standby and not weight,
            replicas=[replica.route],
        )
        for version, weight, replica in (("1", 0, former), ("2", 100, current))
    ]
    dataplane.start_gateway()
    dataplane.portal.serve(endpoint(routes, **changes))
    dataplane.until_in_force()
    eventually(
        lambda: dataplane.predict(_ROW).headers.get("x-slipway-model-version") == "2",
        what="version 2 answers",
    )
    eventually(
        lambda: (
            [link.state for report in dataplane.portal.reports[-1:] for link in report.replicas]
            == ["ready", "ready"]
        ),
        what="both replicas are connected",
    )
    return current


def _by_revision(dataplane: Plane, count: str) -> dict[str, int]:
    counters = dataplane.portal.reports[-1].endpoints[0].revisions
    return {counter.revision_id: getattr(counter, count) for counter in counters}


def _captured_as_fallback(dataplane: Plane) -> set[str]:
    paths = [str(path) for path in dataplane.predictions_dir.glob("*/*/*.parquet")]
    if not paths:
        return set()
    sql = "SELECT prediction_id FROM read_parquet(?, union_by_name = true) WHERE is_fallback"
    return {row[0] for row in duckdb.execute(sql, [paths]).fetchall()}


@pytest.mark.thorough
def test_answers_of_a_standby_are_marked_in_the_answer_the_capture_and_the_counters() -> None:
    with plane() as dataplane:
        current = _served(dataplane)
        assert "x-slipway-fallback" not in dataplane.predict(_ROW).headers
        current.process.kill()
        eventually(
            lambda: dataplane.predict(_ROW).headers.get("x-slipway-model-version") == "1",
            what="the standby answers",
        )
        single = dataplane.predict(_ROW)
        assert (single.status, single.headers["x-slipway-fallback"]) == (200, "standby")
        ids = {single.headers["x-slipway-prediction-id"]}
        url = f"http://127.0.0.1:{dataplane.port}/v1/digits/predict"
        headers = {"Authorization": "Bearer slk_0123456789abcdef0123456789abcdef"}

        def ask(_number: int) -> httpx.Response:
            return client.post(url, json={"inputs": _ROW}, headers=headers)

        with httpx.Client() as client, ThreadPoolExecutor(16) as pool:
            # Requests that come together take another way through the gateway.
            for answer in pool.map(ask, range(200)):
                assert answer.status_code == 200
                assert answer.headers["x-slipway-fallback"] == "standby"
                ids.add(answer.headers["x-slipway-prediction-id"])
        refused = dataplane.predict([[1]])
        assert (refused.status, refused.headers["x-slipway-fallback"]) == (400, "standby")
        ids.add(refused.headers["x-slipway-prediction-id"])
        eventually(lambda: ids <= _captured_as_fallback(dataplane), what="the capture says so")
        eventually(
            lambda: _by_revision(dataplane, "fallback")["rev-1"] >= len(ids),
            what="they are in the report",
        )
        assert _by_revision(dataplane, "fallback")["rev-2"] == 0


@pytest.mark.thorough
@pytest.mark.parametrize(
    "changes", [{"fallback": "off"}, {"is_standby": False}], ids=["off", "never served"]
)
def test_no_other_revision_answers_where_none_may(changes: dict[str, Any]) -> None:
    with plane() as dataplane:
        _served(dataplane, **changes).process.kill()
        eventually(
            lambda: dataplane.predict(_ROW).status == 503, what="no revision answers any more"
        )
        answer = dataplane.predict(_ROW)
        assert (answer.status, answer.json()["code"]) == (503, "no_replica")
        assert int(answer.headers["retry-after"]) >= 1
        assert "x-slipway-fallback" not in answer.headers
