"""Predictions that failed: seen by slice and window, found with their status, in no statistic."""

import os
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from django.test import Client

from portal.core import clock
from portal.datasets.models import Version
from portal.monitoring import prediction_search
from portal.monitoring.adapters.parquet import Flat
from portal.monitoring.analysis.rows import SignatureColumns, is_too_large, request_rows
from portal.monitoring.analyst import analyst
from portal.monitoring.exports_and_erasure import run_pending
from portal.monitoring.models import CapturedHour
from portal.monitoring.paths import parts_of
from portal.monitoring.prediction_search import retry_if_replaced
from portal.monitoring.services.labels import label_predictions
from slipway.schemas.monitoring import LabelIn, SelectionFilters
from tests.personas import Api, Personas
from tests.portal.endpoints.pages import ONE, browser_of
from tests.portal.endpoints.serving import GatewayClient
from tests.portal.monitoring.analysis import analysing_process
from tests.portal.monitoring.captured import Traffic
from workers.gateway.capture_log.format import FALLBACK

_AGO = [timedelta(minutes=minutes) for minutes in (50, 40, 30)]


def _asked(a: float | str, *, c: float = 0.0, own: str = "") -> dict[str, Any]:
    columns = ["a", "b", "c", "d", "e"]
    body: dict[str, Any] = {"dataframe_split": {"columns": columns, "data": [[a, 0, c, 0, 0]]}}
    return body | ({"client_request_id": own} if own else {})


def _fail(traffic: Traffic, values: list[Any], status: int, **more: Any) -> list[str]:
    bodies = [_asked(value) for value in values]
    return traffic.capture(bodies, [None] * len(values), status=status, **more)


@pytest.mark.thorough
def test_errors_are_shown_by_slice_and_revision(traffic: Traffic) -> None:
    traffic.normal(1_500, ago=_AGO[0])
    _fail(traffic, [5.0] * 30, 500, ago=_AGO[0])
    _fail(traffic, [5.0] * 7, 504, ago=_AGO[0])
    _fail(traffic, [-5.0] * 4, 400, ago=_AGO[0])
    traffic.look()
    traffic.look()
    sliced = traffic.shown(feature="a", operator=">", value="0")
    assert (sliced["failed"], sliced["refused"]) == (37, 0)
    assert sliced["error_rate"] == pytest.approx(37 / (37 + sliced["predictions"]))
    assert sum(hour["failed"] for hour in sliced["hours"]) == 37
    other = traffic.shown(feature="a", operator="<", value="0")
    assert (other["failed"], other["refused"], other["error_rate"]) == (0, 4, 0)
    # All of this slice failed: it has no rows to judge, and is seen nevertheless.
    broken = traffic.shown(feature="a", operator=">", value="4.9", revision=1)
    assert (broken["predictions"], broken["failed"], broken["error_rate"]) == (0, 37, 1.0)
    assert [hour["predictions"] for hour in broken["hours"]] == [0]


@pytest.mark.thorough
def test_what_failed_is_in_no_statistic(traffic: Traffic) -> None:
    traffic.normal(1_500, ago=_AGO[0])
    traffic.look()
    traffic.look()
    before = traffic.shown()
    ids = _fail(traffic, [9.0] * 700, 500, ago=_AGO[1])
    label_predictions(
        endpoint=traffic.endpoint,
        by=traffic.endpoint.made_by,
        labels=[LabelIn(prediction_id=prediction_id, value=1) for prediction_id in ids],
    )
    traffic.look()
    traffic.look()
    after = traffic.shown()
    for name in ("predictions", "rows", "verdict", "unreadable"):
        assert after[name] == before[name]
    assert after["features"] == before["features"]
    assert (after["quality"]["labelled"], after["quality"]["rows"]) == (0, 1_500)
    assert len(after["windows"]) == len(before["windows"]) == 1
    # The window after says how many failed meanwhile, and is judged by the others alone.
    traffic.normal(1_000, ago=_AGO[2])
    traffic.look()
    (last, first) = traffic.shown()["windows"]
    assert (first["failed"], last["failed"], last["rows"], last["different"]) == (0, 700, 1_000, 0)


@pytest.mark.thorough
def test_what_is_refused_adds_and_changes_no_column(traffic: Traffic) -> None:
    _fail(traffic, ["tall"], 400)
    traffic.capture([{"inputs": {"made_up": [1.0]}}, b"\x00{"], [None, None], status=400)
    traffic.look()
    assert traffic.shown()["unreadable"] == 0
    traffic.normal(20)
    _fail(traffic, ["tall", 3.0], 400)
    traffic.look()
    refused = traffic.api.get(f"{traffic.root}/predictions?feature=made_up&value=1")
    assert (refused.status_code, b"no_such_feature" in refused.content) == (422, True)
    matches = traffic.get("predictions", feature="a", operator=">", value="2.9", status="400")
    assert [prediction["inputs"]["a"] for prediction in matches["items"]] == [3.0]


@pytest.mark.thorough
def test_predictions_are_found_by_status_and_selected_when_asked_for(traffic: Traffic) -> None:
    good = traffic.normal(20)
    bad = _fail(traffic, [3.0, 4.0], 500) + _fail(traffic, [5.0], 504)
    traffic.look()
    by_id = {
        prediction["prediction_id"]: prediction
        for prediction in traffic.get("predictions")["items"]
    }
    assert {name: by_id[name]["status"] for name in bad} == dict(
        zip(bad, (500, 500, 504), strict=True)
    )
    assert {by_id[name]["status"] for name in good} == {200}
    shown = by_id[bad[0]]
    assert (shown["inputs"]["a"], set(shown["outputs"].values()) - {None}) == (3.0, set())
    for status, ids in (("failed", bad), ("answered", good), ("504", bad[2:]), ("any", good + bad)):
        matches = traffic.get("predictions", status=status, limit=100)["items"]
        assert {prediction["prediction_id"] for prediction in matches} == set(ids)
    refused = traffic.api.get(f"{traffic.root}/predictions?status=200ish")
    assert (refused.status_code, b"status" in refused.content) == (422, True)
    for dataset, filters in (("good", {}), ("bad", {"status": "failed"})):
        selection = {"dataset": dataset, "filters": filters, "only_labelled": False}
        traffic.post("selections", selection, status=202)
    run_pending()
    rows = {item["dataset"]: item["rows"] for item in traffic.get("selections")["items"]}
    assert rows == {"good": 20, "bad": 3}
    assert Version.objects.filter(dataset__name="bad").count() == 1


@pytest.mark.thorough
def test_wide_and_long_inputs_are_shortened_with_a_count_and_a_word(traffic: Traffic) -> None:
    wide = {"dataframe_records": [{f"c{number}": number for number in range(2_001)}]}
    ids = traffic.capture([{"inputs": [["y" * 4_000]]}], [{"predictions": [1]}])
    traffic.look()
    (item,) = traffic.get("predictions", prediction_id=ids[0])["items"]
    (text,) = [value for value in item["inputs"].values() if value is not None]
    assert "y … (the beginning of 4,000 characters, SHA-256 " in text
    traffic.capture([wide], [{"predictions": [1]}])
    traffic.look()
    assert traffic.shown()["shortened"] == 1


def test_no_cell_of_a_long_table_is_cut_in_half() -> None:
    table = "a,b\n" + "1.5,a long word\n" * 600_000
    rows, _ = request_rows(table, SignatureColumns())
    assert is_too_large(rows)
    assert rows[-1] == {"a": 1.5, "b": "a long word"}


@pytest.mark.thorough
def test_a_selection_of_too_many_predictions_is_refused_and_never_cut(
    traffic: Traffic, monkeypatch: pytest.MonkeyPatch
) -> None:
    traffic.normal(20)
    traffic.look()
    for most, rows, reason in ((20, 20, ""), (19, 0, "More than 19 rows match")):
        monkeypatch.setattr(prediction_search, "_MOST_IDS", most)
        selection = {"dataset": f"of-{most}", "filters": {}, "only_labelled": False}
        traffic.post("selections", selection, status=202)
        run_pending()
        done = next(
            item for item in traffic.get("selections")["items"] if item["dataset"] == f"of-{most}"
        )
        assert done["rows"] == rows
        assert done["reason"].startswith(reason)


@pytest.mark.thorough
def test_a_label_by_own_id_is_of_the_answer_and_erasing_takes_failures_along(
    traffic: Traffic,
) -> None:
    first = traffic.capture([_asked(1.0, own="order-x")], [None], status=503)
    (again,) = traffic.capture([_asked(1.0, own="order-x")], [{"predictions": [1]}])
    (last,) = traffic.capture([_asked(1.0, own="order-x")], [None], status=503)
    traffic.post("labels", {"labels": [{"own_id": "order-x", "value": 1}]})
    traffic.look()
    assert [label["prediction_id"] for label in traffic.get("labels")["items"]] == [again]
    matches = traffic.get("predictions", own_id="order-x")["items"]
    assert {prediction["prediction_id"] for prediction in matches} == {*first, again, last}
    traffic.post("erasures", {"own_id": "order-x"}, status=202)
    run_pending()
    assert traffic.get("predictions", own_id="order-x")["items"] == []


@pytest.mark.thorough
def test_hours_from_before_failures_were_kept_are_read_with_those_after(traffic: Traffic) -> None:
    for hours in range(7, 1, -1):
        traffic.normal(20, ago=timedelta(hours=hours))
    traffic.look()
    for part in parts_of(CapturedHour.objects.all()):
        table = pq.read_table(part)
        pq.write_table(table.drop_columns(["failed_status"]), part)
    whole = {"since": (clock.now() - timedelta(hours=9)).isoformat(), "limit": 200}
    assert len(traffic.get("predictions", **whole)["items"]) == 120
    assert traffic.get("predictions", status="failed", **whole)["items"] == []
    bad = _fail(traffic, [3.0], 500)
    traffic.look()
    assert len(traffic.get("predictions", **whole)["items"]) == 121
    matches = traffic.get("predictions", status="failed", **whole)["items"]
    assert [prediction["prediction_id"] for prediction in matches] == bad
    del whole["limit"]
    sliced = traffic.shown(feature="a", operator=">", value="-99", **whole)
    assert (sliced["predictions"], sliced["failed"]) == (120, 1)


@pytest.mark.thorough
def test_predictions_of_a_standby_are_marked_where_they_are_found(
    traffic: Traffic, people: Personas
) -> None:
    traffic.normal(20, ago=timedelta(hours=5))
    traffic.look()
    for part in parts_of(CapturedHour.objects.all()):
        pq.write_table(pq.read_table(part).drop_columns(["is_fallback"]), part)
    body = {"dataframe_split": {"columns": ["a"], "data": [[1]]}}
    marked = traffic.capture([body], [{"predictions": [1]}], flags=FALLBACK)
    traffic.look()
    whole = {"since": (clock.now() - timedelta(hours=9)).isoformat(), "limit": 200}
    items = traffic.get("predictions", **whole)["items"]
    assert len(items) == 21
    assert [
        prediction["prediction_id"] for prediction in items if prediction["is_fallback"]
    ] == marked
    page = browser_of(people.bob).get(f"{ONE}/monitoring/predictions").content.decode()
    assert page.count(">standby</span>") == 1


@pytest.mark.thorough
def test_columns_that_only_newer_hours_have_are_asked_for_in_all(traffic: Traffic) -> None:
    old = traffic.capture(
        [{"inputs": {"z": [7.0]}}], [{"predictions": [1]}], ago=timedelta(hours=9)
    )
    for hours in range(8, 1, -1):
        traffic.normal(5, ago=timedelta(hours=hours))
    traffic.look()
    matches = traffic.get("predictions", feature="z", value="7")["items"]
    assert [prediction["prediction_id"] for prediction in matches] == old


@pytest.mark.thorough
def test_failures_are_on_the_pages(traffic: Traffic, people: Personas) -> None:
    traffic.normal(30)
    _fail(traffic, [9.0] * 10, 503)
    traffic.look()
    bob = Client(headers={"Accept": "text/html"})
    bob.force_login(people.bob)
    page = "/p/vision/endpoints/digits/monitoring"
    sliced = bob.get(f"{page}?feature=a&operator=%3E&value=8").content.decode()
    assert "100 % of all requests" in sliced
    assert 'id="chart-errors"' in sliced
    listed = bob.get(f"{page}/predictions?status=failed").content.decode()
    assert listed.count("failed: 503") == 10
    odd = Api.of(people.bob).get(f"{traffic.root}/predictions?status=2")
    assert odd.status_code == 422


@pytest.mark.thorough
def test_what_no_model_saw_is_shown_by_hour_and_on_the_page(
    traffic: Traffic, gateway: GatewayClient, people: Personas
) -> None:
    traffic.normal(20)
    traffic.look()
    turned = {"shed": 3, "rate_limited": 2, "unauthorized": 4}
    gateway.report(endpoints=[{"endpoint_id": traffic.endpoint_id} | turned])
    shown = traffic.shown()
    assert (shown["rejected"], shown["unauthorized"], shown["failed"]) == (5, 4, 0)
    assert sum(hour["rejected"] for hour in shown["hours"]) == 5
    # They reached no revision, and nobody knows of what slice they were.
    assert traffic.shown(revision=1)["rejected"] == 0
    sliced = traffic.shown(feature="a", operator=">", value="0")
    assert {hour["rejected"] for hour in sliced["hours"]} == {None}
    bob = Client(headers={"Accept": "text/html"})
    bob.force_login(people.bob)
    page = bob.get("/p/vision/endpoints/digits/monitoring").content.decode()
    assert "<dt>Rejected</dt><dd>5" in page
    assert "4 more without a valid key" in page


@pytest.mark.thorough
def test_an_endpoint_that_never_answered_shows_what_failed_and_says_what_cannot_be_asked(
    traffic: Traffic, people: Personas
) -> None:
    _fail(traffic, [9.0] * 10, 503)
    traffic.look()
    traffic.look()
    shown = traffic.shown()
    assert (shown["predictions"], shown["features"], shown["windows"]) == (0, [], [])
    assert len(traffic.get("predictions", status="failed")["items"]) == 10
    bob = Client(headers={"Accept": "text/html"})
    bob.force_login(people.bob)
    page = "/p/vision/endpoints/digits/monitoring"
    assert "No baseline" in bob.get(page).content.decode()
    sliced = bob.get(f"{page}?feature=a&operator=%3E&value=8").content.decode()
    assert "digits has no processed prediction yet" in sliced


@pytest.mark.thorough
def test_what_analyses_steps_back_behind_what_predicts(traffic: Traffic) -> None:
    """Questions of pages run in threads of low priority, passes in a process of low priority."""
    traffic.normal(300)
    traffic.look()
    before = {thread.name for thread in Path("/proc/self/task").iterdir()}
    own = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    def ask(chosen: Flat) -> dict[str, int]:
        chosen._query("SELECT count(*) FROM range(3000000) WHERE sqrt(range) > 5", [])
        there = {thread.name for thread in Path("/proc/self/task").iterdir()} - before
        return {thread: os.getpriority(os.PRIO_PROCESS, int(thread)) for thread in there}

    priorities = retry_if_replaced(traffic.endpoint, SelectionFilters(), ask)
    # The one that asks, and at least one that DuckDB started for it.
    assert len(priorities) >= 2
    # The priority is set: under `nice make test` it is as far back as without.
    assert set(priorities.values()) == {max(10, own)}
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == own
    with analyst() as process:
        process.request("own_ids", paths=[], requested=[])
        pid = analysing_process(os.getpid())
        assert os.getpriority(os.PRIO_PROCESS, pid) == 19
        processors = os.sched_getaffinity(0)
        left_alone = processors - os.sched_getaffinity(pid)
        assert len(left_alone) == len(processors) // 2
