"""Pages of steps that are sweeps: links, progress, outputs, differences."""

from pathlib import Path

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from portal.sweeps.services.progress import advance_all as advance_sweeps
from tests.personas import Api, Personas
from tests.portal.pipelines.pipeline_runs import advance, start, step, steps_of
from tests.portal.pipelines.sweep_steps import finish_sweep, sweep_of, sweep_step
from tests.portal.web.conftest import Browse
from tests.portal.web.reading import html_of, text_of
from tests.portal.workloads.machines import Machine

PIPELINES = "/p/vision/pipelines"
MOST_QUERIES = 40


@pytest.fixture(autouse=True)
def _artifacts(settings: Settings, tmp_path: Path) -> None:
    settings.SLIPWAY_ARTIFACTS_URL = f"file://{tmp_path / 'artifacts'}"


def test_the_page_links_to_the_sweep_and_shows_its_progress_and_best_trial(
    bob: Api, people: Personas, browse: Browse, machine: Machine
) -> None:
    vera, run_id = browse(people.vera), start(bob, [sweep_step(), step("use", after=["tune"])])
    advance_sweeps()
    advance()
    sweep = sweep_of(bob, run_id)
    page = vera.get(f"{PIPELINES}/{run_id}")
    assert html_of(page).count(f'href="/p/vision/sweeps/{sweep}"') == 2  # graph and table
    assert "tune sweep running 0 of 3 trials have ended." in text_of(page)
    assert "Log of" not in text_of(page)
    finish_sweep(bob, machine, run_id)
    outputs = steps_of(bob, run_id)["tune"]["outputs"]
    with CaptureQueriesContext(connection) as queries:
        page = vera.get(f"{PIPELINES}/{run_id}")
    assert len(queries) <= MOST_QUERIES
    assert f'href="/p/vision/runs/{outputs["best_run"]}"' in html_of(page)
    assert f'href="/p/vision/jobs/{outputs["best_job"]}"' in html_of(page)
    sweep_page = vera.get(f"/p/vision/sweeps/{sweep}")
    assert "step tune of the pipeline digits" in text_of(sweep_page)
    assert f'href="{PIPELINES}/{run_id}"' in html_of(sweep_page)


def test_best_trials_are_no_difference_between_runs_but_their_values_are(
    bob: Api, people: Personas, browse: Browse, machine: Machine
) -> None:
    for seed in (1, 2):
        run_id = start(bob, [sweep_step(seed=seed)])
        finish_sweep(bob, machine, run_id)
    page = text_of(browse(people.vera).get(f"{PIPELINES}/{run_id}"))
    assert "seed 1 → 2" in page
    assert "best_value" in page[page.index("Differences from another run") :]
    assert "best_run" not in page[page.index("Differences from another run") :]
