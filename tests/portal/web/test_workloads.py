"""The page of a workload: its kind's own, or the generic one with log, events, usage and cost."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_django import Settings

from portal.compute.models import Tier
from portal.workloads.models import Workload
from portal.workloads.ports import Kind, register_kind
from portal.workloads.presentation import Presentation
from tests.personas import Personas
from tests.portal.web.conftest import Browse
from tests.portal.web.labs import print_lines, run_job, use_store
from tests.portal.web.reading import html_of, text_of
from tests.portal.workloads.machines import make_machine, make_tier, stand_in_kinds, submit

PAGES = ("", "/stop", "/log", "/log/find?q=x", "/log/follow", "/log/download", "/samples")


@pytest.fixture(autouse=True)
def _kinds() -> Iterator[None]:
    with stand_in_kinds():
        shown = Presentation(search_noun="greetings")
        register_kind(Kind("greeting", "greeting", presentation=shown))
        yield


@pytest.fixture
def tier(people: Personas, settings: Settings, tmp_path: Path) -> Tier:
    """A tier that the one machine has room for."""
    use_store(settings, tmp_path)
    make_machine("lab-1", cpus=2, gib=8)
    return make_tier("small")


def test_a_kind_without_a_page_of_its_own_has_the_generic_one(
    people: Personas, browse: Browse, tier: Tier
) -> None:
    workload = submit(people.vision, people.bob, tier, kind="greeting", name="hello")
    bob, address = browse(people.bob), f"/p/vision/workloads/{workload.pk}"
    assert "Greeting, submitted by Bob" in text_of(bob.get(address))
    run_job(workload)  # type: ignore[arg-type]
    print_lines(workload, "good morning\n")
    page = text_of(bob.get(address))
    assert "good morning" in page
    assert "Submitted by Bob." in page
    assert "Cost so far" in page
    assert "lab-1" in page
    refreshed = text_of(bob.get(address, headers={"HX-Request": "true"}))
    assert "good morning" not in refreshed
    assert bob.get(f"{address}/log").json()["text"] == "good morning\n"


def test_the_palette_finds_it_without_a_search_of_its_kind(
    people: Personas, browse: Browse, tier: Tier
) -> None:
    workload = submit(people.vision, people.bob, tier, kind="greeting", name="good-morning")
    submit(people.vision, people.bob, tier, name="good-job")
    page = html_of(browse(people.bob).get("/palette?q=good"))
    assert page.count(f'data-url="/p/vision/workloads/{workload.pk}"') == 1
    assert "greeting of Vision" in page
    assert "good-morning" in html_of(browse(people.bob).get("/palette?project=vision"))
    assert "good-morning" not in html_of(browse(people.charlie).get("/palette?q=good"))


def test_a_contributor_stops_it_and_a_viewer_does_not(
    people: Personas, browse: Browse, tier: Tier
) -> None:
    workload = submit(people.vision, people.bob, tier, kind="greeting", name="hello")
    address = f"/p/vision/workloads/{workload.pk}"
    assert f"{address}/stop" not in html_of(browse(people.vera).get(address))
    assert browse(people.vera).post(f"{address}/stop").status_code == 403
    bob = browse(people.bob)
    assert "Stop hello?" in text_of(bob.get(f"{address}/stop"))
    assert bob.post(f"{address}/stop").headers["Location"] == address
    assert Workload.objects.get(pk=workload.pk).state == "stopped"
    assert f"{address}/stop" not in html_of(bob.get(address))


def test_a_kind_with_a_page_of_its_own_is_shown_and_stopped_there(
    people: Personas, browse: Browse, tier: Tier
) -> None:
    job = submit(people.vision, people.bob, tier)
    bob, address = browse(people.bob), f"/p/vision/workloads/{job.pk}"
    own = f"/p/vision/jobs/{job.pk}"
    assert bob.get(address).headers["Location"] == own
    assert bob.post(f"{address}/stop").headers["Location"] == own
    assert Workload.objects.get(pk=job.pk).state == "queued"


@pytest.mark.parametrize("page", PAGES)
def test_the_workload_of_another_project_is_not_there(
    people: Personas, browse: Browse, tier: Tier, page: str
) -> None:
    theirs = submit(people.other, people.charlie, tier, kind="greeting", name="hello")
    alice = browse(people.alice)
    for address in (f"/p/vision/workloads/{theirs.pk}", "/p/vision/workloads/wl_missing"):
        assert alice.get(f"{address}{page}").status_code == 404
        assert alice.post(f"{address}/stop").status_code == 404
    assert alice.get(f"/p/other/workloads/{theirs.pk}{page}").status_code == 404
    assert Workload.objects.get(pk=theirs.pk).state == "queued"
