"""Lists of runs: filters, orders, pages, columns, groups and curves, of one project alone."""

import math
from typing import Any

import pytest
from django.db import connections
from django.test.utils import CaptureQueriesContext

from portal.accounts.models import Project
from portal.experiments.adapters.mlflow import search
from portal.experiments.adapters.mlflow.tracker import SqlTracker
from portal.experiments.filters import parse_field, parse_filter
from portal.experiments.ports import RunSearch, SortOrder, Stage
from tests.personas import Personas
from tests.portal.experiments.world import log_curve, make_experiment, make_run

pytestmark = [pytest.mark.postgres, pytest.mark.django_db(databases=["default", "tracking"])]


def search_for(project: Project, **changes: Any) -> RunSearch:
    """A search of a project's runs; `filter` and `order` are written as in the address."""
    if "filter" in changes:
        changes["conditions"] = parse_filter(changes.pop("filter"))
    if "order" in changes:
        text = changes["order"]
        field = parse_field(text.removeprefix("-"), name="order")
        changes["order"] = SortOrder(field, descending=text.startswith("-"))
    return RunSearch(project_id=project.pk, **changes)


def names(search: RunSearch) -> list[str]:
    """The names of all runs of a search, over all its pages of two."""
    listed: list[str] = []
    cursor = None
    while True:
        page = SqlTracker().search(RunSearch(**{**search.__dict__, "limit": 2, "cursor": cursor}))
        listed += [run.name for run in page.items]
        cursor = page.next_cursor
        if cursor is None:
            return listed


@pytest.fixture
def runs(people: Personas) -> Project:
    """Five runs of vision, one of them in the trash, and one of other with the same words."""
    ours, theirs = make_experiment(people.vision), make_experiment(people.other)
    logged: list[dict[str, Any]] = [
        {"metrics": {"loss": 0.5}, "params": {"lr": "0.1", "opt": "sgd"}, "tags": {"team": "A%b"}},
        {"metrics": {"loss": math.nan}, "params": {"lr": "0.2", "opt": "sgd"}},
        {"metrics": {"loss": math.inf}, "params": {"lr": "0.1"}, "status": "FAILED"},
        {"metrics": {"other": 1.0}, "params": {"opt": "adam"}, "tags": {"team": "axb"}},
    ]
    for number, fact in enumerate(logged):
        make_run(ours, f"r{number}", minute=number, **fact)
    make_run(ours, "binned", minute=9, lifecycle_stage="deleted", metrics={"loss": 0.5})
    make_run(theirs, "foreign", minute=5, metrics={"loss": 0.5}, params={"lr": "0.1"})
    return people.vision


@pytest.mark.parametrize("few", [0, 2_000])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["r3", "r2", "r1", "r0"]),
        ("metrics.loss < 1", ["r0"]),
        ("metrics.loss != 0.5", ["r2", "r1"]),
        ("metrics.loss > 1e300", ["r2"]),
        ("params.lr = '0.1'", ["r2", "r0"]),
        ("params.lr in ('0.2', '9')", ["r1"]),
        ("params.lr is null", ["r3"]),
        ("params.lr = '0.1' and metrics.loss < 1", ["r0"]),
        ("tags.team like 'a%'", ["r3"]),
        ("tags.team ilike 'a%'", ["r3", "r0"]),
        ("tags.team = 'A%b'", ["r0"]),
        ("attributes.status = 'FAILED'", ["r2"]),
        ("run_name like 'r_'", ["r3", "r2", "r1", "r0"]),
        ("attributes.run_name = 'foreign'", []),
        ("params.`x'; drop table runs; --` = 'y'", []),
    ],
)
def test_a_filter_finds_what_mlflow_would(
    runs: Project, monkeypatch: pytest.MonkeyPatch, few: int, text: str, expected: list[str]
) -> None:
    monkeypatch.setattr(search, "FEW", few)
    assert names(search_for(runs, filter=text)) == expected


def test_sqlite_reads_only_entries_with_the_value_that_a_filter_asks_for(
    runs: Project,
) -> None:
    tracking = connections["tracking"]
    if tracking.vendor != "sqlite":
        pytest.skip("PostgreSQL plans by its statistics")
    with CaptureQueriesContext(tracking) as queries:
        assert names(search_for(runs, filter="params.lr = '0.1'"))
    by_value = next(
        q["sql"] for q in queries if q["sql"].startswith("SELECT v.run_uuid FROM params")
    )
    with tracking.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {by_value}")
        plan = cursor.fetchone()[-1]
    assert "slipway_params_value (key=? AND <expr>=?)" in plan


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("start_time", ["r0", "r1", "r2", "r3"]),
        ("metrics.loss", ["r0", "r2", "r3", "r1"]),
        ("-metrics.loss", ["r2", "r0", "r3", "r1"]),
        ("params.opt", ["r3", "r0", "r1", "r2"]),
        ("-run_name", ["r3", "r2", "r1", "r0"]),
    ],
)
def test_pages_follow_each_other_in_any_order_without_gap_or_repetition(
    runs: Project, order: str, expected: list[str]
) -> None:
    listed = names(search_for(runs, order=order))
    assert sorted(listed) == ["r0", "r1", "r2", "r3"]
    if order.startswith("params"):
        assert listed[0] == "r3"
        assert listed[3] == "r2"
    else:
        assert listed == expected


def test_runs_come_with_the_columns_that_were_asked_for(runs: Project) -> None:
    columns = tuple(parse_field(text, name="c") for text in ("metrics.loss", "params.opt"))
    page = SqlTracker().search(search_for(runs, columns=columns))
    by_name = {run.name: run for run in page.items}
    assert by_name["r0"].metrics == {"loss": 0.5}
    assert math.isnan(by_name["r1"].metrics["loss"])
    assert by_name["r2"].metrics == {"loss": math.inf}
    assert by_name["r3"].params == {"opt": "adam"}
    assert by_name["r0"].tags == {}


def test_the_bin_is_listed_apart(runs: Project) -> None:
    assert names(search_for(runs, stage=Stage.DELETED)) == ["binned"]


def test_another_projects_experiment_finds_nothing(runs: Project, people: Personas) -> None:
    theirs = SqlTracker().experiments(people.other.pk)[0]
    assert names(search_for(runs, experiment_ids=(theirs.id,))) == []
    assert names(search_for(people.other)) == ["foreign"]


def test_groups_count_runs_and_take_means(runs: Project) -> None:
    by = parse_field("params.opt", name="group")
    columns = (parse_field("metrics.loss", name="c"),)
    groups = SqlTracker().groups(search_for(runs, columns=columns, filter="metrics.loss < 9"), by)
    assert [(group.value, group.runs, group.means) for group in groups] == [
        ("sgd", 1, {"loss": 0.5})
    ]
    assert {group.value: group.runs for group in SqlTracker().groups(search_for(runs), by)} == {
        "sgd": 2,
        "adam": 1,
        None: 1,
    }


def test_fields_are_those_of_the_projects_own_runs(runs: Project) -> None:
    known = SqlTracker().fields(search_for(runs))
    assert [str(field) for field in known.fields] == [
        *("metrics.loss", "metrics.other"),
        *("params.lr", "params.opt", "tags.team"),
    ]
    assert known.is_complete


def test_experiments_carry_their_counts(runs: Project) -> None:
    make_experiment(runs, "100% new")
    listed = SqlTracker().experiments(runs.pk)
    assert [(it.name, it.runs) for it in listed] == [("digits", 4), ("100% new", 0)]
    assert [it.name for it in SqlTracker().experiments(runs.pk, text="0%")] == ["100% new"]


def test_a_long_curve_keeps_its_peaks_its_ends_and_what_is_no_number(people: Personas) -> None:
    run = make_run(make_experiment(people.vision))
    values = [math.sin(step / 50) for step in range(5_000)]
    values[1234], values[2345], values[3456], values[3457] = 99.0, -99.0, math.nan, math.inf
    log_curve(run, "loss", values)
    tracker = SqlTracker()
    for axis in ("step", "time"):
        (curve,) = tracker.curves(
            people.vision.pk, [run.pk], ["loss", "none"], most_points=200, axis=axis
        )
        assert curve.total == 5_000
        assert len(curve.points) <= 210
        kept = {point.step: point.value for point in curve.points}
        assert kept[1234] == 99.0
        assert kept[2345] == -99.0
        assert math.isnan(kept[3456])
        assert kept[3457] == math.inf
        assert {0, 4_999} <= set(kept)
        assert [point.step for point in curve.points] == sorted(kept)
    (whole,) = tracker.curves(people.vision.pk, [run.pk], ["loss"], most_points=10_000)
    assert [point.step for point in whole.points] == list(range(5_000))
    assert tracker.curves(people.other.pk, [run.pk], ["loss"], most_points=10) == []


def test_one_run_is_shown_whole_to_its_own_project_alone(runs: Project, people: Personas) -> None:
    page = SqlTracker().search(search_for(runs, filter="run_name = 'r0'"))
    run = SqlTracker().run(runs.pk, page.items[0].id)
    assert run is not None
    assert run.experiment == "digits"
    assert run.facts.params == {"lr": "0.1", "opt": "sgd"}
    assert [(value.key, value.value, value.step) for value in run.metrics] == [("loss", 0.5, 0)]
    assert SqlTracker().run(people.other.pk, page.items[0].id) is None
