"""Workloads that are parts of another one: submission, stopping, pages and spend."""

from datetime import timedelta
from pathlib import Path

import pytest
from pytest_django import Settings

from portal.core.clock import frozen
from portal.core.errors import Conflict, InvalidInput
from portal.spend.meter import meter
from portal.spend.models import WorkloadTotal
from portal.training.services.jobs import clone_job
from portal.workloads.costs import cost_of_parts, unix_ms, workload_cost
from portal.workloads.models import Workload
from portal.workloads.services.cancellation import stop_workload
from portal.workloads.services.submission import MAX_DEPTH
from slipway.schemas.training import JobEdit
from tests.personas import Api, Personas, json_of
from tests.portal.endpoints.pages import browser_of
from tests.portal.web.labs import make_job, run_job, take_code, use_store
from tests.portal.web.reading import text_of
from tests.portal.workloads.machines import (
    after,
    finish,
    make_machine,
    make_tier,
    state_of,
    states_of,
)


@pytest.fixture
def search(people: Personas, settings: Settings, tmp_path: Path) -> Workload:
    """A running job of Bob's, of which others can be parts. An hour of a task costs 3.60 USD."""
    use_store(settings, tmp_path)
    make_machine("lab", cpus=8, gib=16)
    make_tier("small", nano_usd_per_hour=3_600_000_000)
    return run_job(make_job(people.vision, people.bob, name="search"))


def _part(people: Personas, parent: Workload, name: str = "trial") -> Workload:
    return make_job(people.vision, people.bob, name=name, parent=parent.pk).workload


def test_a_job_is_submitted_as_a_part_of_another_one(people: Personas, search: Workload) -> None:
    bob = Api.of(people.bob)
    body = {"script": "train.py", "snapshot": take_code(people.vision, people.bob)}
    made = json_of(bob.post("projects/vision/jobs", body | {"parent": search.pk}))
    assert made["workload"]["parent"] == search.pk
    listed = json_of(bob.get(f"projects/vision/workloads?parent={search.pk}"))["items"]
    assert [item["id"] for item in listed] == [made["workload"]["id"]]
    again = clone_job(
        job=make_job(people.vision, people.bob, parent=search.pk), by=people.bob, edit=JobEdit()
    )
    assert again.workload.parent is None, "a clone is a run of its own"


@pytest.mark.parametrize("parent", ["wl_missing", "another project's"])
def test_a_parent_must_be_in_the_same_project(
    people: Personas, search: Workload, parent: str
) -> None:
    other = make_job(people.other, people.charlie).pk
    body = {"script": "train.py", "snapshot": take_code(people.vision, people.bob)}
    body["parent"] = other if parent.startswith("another") else parent
    refused = Api.of(people.bob).post("projects/vision/jobs", body)
    assert refused.status_code == 422
    assert json_of(refused)["code"] == "no_such_parent"
    assert json_of(refused)["field"] == "parent"


def test_what_has_ended_gets_no_parts(people: Personas, search: Workload) -> None:
    finish(search)
    with pytest.raises(Conflict, match="search is succeeded"):
        _part(people, search)


def test_parts_are_nested_so_deep_and_no_deeper(people: Personas, search: Workload) -> None:
    innermost = search
    for _ in range(MAX_DEPTH - 1):
        innermost = _part(people, innermost)
    assert innermost.root == search
    with pytest.raises(InvalidInput, match="nested"):
        _part(people, innermost)


def test_parts_of_all_levels_are_stopped_with_their_parent(
    people: Personas, search: Workload
) -> None:
    trial = _part(people, search)
    inner = _part(people, trial, "inner")
    done = _part(people, search, "done")
    stop_workload(workload=done, by=people.bob)
    beside = make_job(people.vision, people.bob, name="beside").workload
    stop_workload(workload=search, by=people.alice)
    assert state_of(search) == "stopping"
    assert states_of(trial, inner, done, beside) == ["stopped", "stopped", "stopped", "queued"]
    inner.refresh_from_db()
    assert inner.reason_text == "Stopped with trial, which it is a part of."
    with pytest.raises(Conflict, match="nothing can become a part"):
        _part(people, search)


def test_a_part_that_is_stopped_leaves_its_parent_alone(people: Personas, search: Workload) -> None:
    stop_workload(workload=_part(people, search), by=people.bob)
    assert state_of(search) == "running"


def test_spend_counts_parts_at_the_outermost_workload(people: Personas, search: Workload) -> None:
    trial = _part(people, search)
    inner = _part(people, trial, "inner")
    for workload in (trial, inner):
        run_job(workload)  # type: ignore[arg-type]
    later = after(7200)
    with frozen(later):
        meter()
    with frozen(later + timedelta(seconds=1)):
        until_ms = unix_ms(later)
        parts = sum(workload_cost(part, until_ms=until_ms) for part in (trial, inner))
        assert cost_of_parts(search, until_ms=until_ms) == parts > 0
        assert set(WorkloadTotal.objects.values_list("workload", flat=True)) == {search.pk}
        shown = json_of(Api.of(people.bob).get("projects/vision/spend"))
        assert [run["name"] for run in shown["runs"]] == ["search"]
        assert shown["runs"][0]["nano_usd"] == shown["nano_usd"]


def test_pages_link_parts_and_their_parent(people: Personas, search: Workload) -> None:
    trial = _part(people, search)
    bob = browser_of(people.bob)
    page = text_of(bob.get(f"/p/vision/jobs/{search.pk}"))
    assert "Cost with parts" in page
    assert (
        f'href="/p/vision/workloads/{trial.pk}"'
        in bob.get(f"/p/vision/jobs/{search.pk}").content.decode()
    )
    assert "Part of search" in text_of(bob.get(f"/p/vision/jobs/{trial.pk}"))
