"""Pages of schedules: create one, see what it does, change it."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from portal.core import clock
from portal.pipelines.models import ProjectSchedule
from tests.personas import Api, Personas
from tests.portal.pipelines.schedules import (
    EVENING,
    advance,
    at,
    create_nightly,
    end_job,
    runs_of,
)
from tests.portal.sweeps.trials import start_sweep
from tests.portal.training.jobs import made_job
from tests.portal.web.conftest import Browse
from tests.portal.web.reading import fault_of, html_of, text_of
from tests.portal.workloads.machines import Machine

SCHEDULES = "/p/vision/schedules"
NIGHTLY = f"{SCHEDULES}/nightly"
MOST_QUERIES = 20


def _form(job: str, **changes: str) -> dict[str, str]:
    return {
        "name": "nightly",
        "template": job,
        "cron": "0 2 * * *",
        "zone": "Europe/Berlin",
        "missed": "once",
        "overlap": "skip",
    } | changes


def test_the_form_shows_the_next_times_and_creates_a_schedule(
    bob: Api, people: Personas, browse: Browse, machine: Machine
) -> None:
    client, job = browse(people.bob), made_job(bob)["workload"]["id"]
    assert "No schedules yet" in text_of(client.get(SCHEDULES))
    assert f"{SCHEDULES}/new?job={job}" in html_of(client.get(f"/p/vision/jobs/{job}"))
    assert f'value="{job}"' in html_of(client.get(f"{SCHEDULES}/new?job={job}"))
    with clock.frozen(EVENING):
        preview = client.post(f"{SCHEDULES}/preview", _form(job, cron="0 2 * * MON-FRI"))
        assert "Thu 10 Dec 2026, 02:00 CET Fri 11 Dec 2026, 02:00 CET Mon 14" in text_of(preview)
        without_scripts = client.post(f"{SCHEDULES}/new", _form(job) | {"do": "preview"})
        assert without_scripts.status_code == 200
        assert "Thu 10 Dec 2026, 02:00 CET" in text_of(without_scripts)
        answer = client.post(f"{SCHEDULES}/new", _form(job))
    assert answer.headers["Location"] == NIGHTLY
    assert ProjectSchedule.objects.get().job_id == job
    with clock.frozen(EVENING):
        page = text_of(client.get(NIGHTLY))
    assert "Fri 11 Dec 2026, 02:00 CET" in page
    assert "It has not run yet." in page
    assert "paid by Bob" in page


def test_a_sweep_is_scheduled_from_its_page(
    bob: Api, people: Personas, browse: Browse, machine: Machine
) -> None:
    client, sweep = browse(people.bob), start_sweep(bob)
    assert f"{SCHEDULES}/new?sweep={sweep}" in html_of(client.get(f"/p/vision/sweeps/{sweep}"))
    assert client.post(f"{SCHEDULES}/new", _form(sweep)).status_code == 302
    assert ProjectSchedule.objects.get().sweep_id == sweep
    assert "sweep digits" in text_of(client.get(NIGHTLY))


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"cron": "0 2 31 2 *"}, "cron", "it would never fire"),
        ({"cron": "often"}, "cron", "has 1 field, not 5"),
        ({"zone": "Mars"}, "zone", "There is no time zone Mars."),
        ({"name": "Every night"}, "name", "lower-case letters"),
        ({"template": "wl_none"}, "template", "There is no job wl_none"),
        ({"template": "swp_none"}, "template", "There is no sweep swp_none"),
        ({"template": ""}, "template", "This field is required."),
        ({"missed": "all", "overlap": "cancel"}, "missed", "cannot all be made up for"),
    ],
)
def test_a_form_that_makes_no_sense_is_refused(
    bob: Api,
    people: Personas,
    browse: Browse,
    machine: Machine,
    changes: dict[str, str],
    field: str,
    words: str,
) -> None:
    job = made_job(bob)["workload"]["id"]
    answer = browse(people.bob).post(f"{SCHEDULES}/new", _form(job) | changes)
    assert answer.status_code == 422
    assert words in fault_of(answer, field)
    assert not ProjectSchedule.objects.exists()


def test_the_preview_says_what_is_wrong_with_an_expression(
    people: Personas, browse: Browse
) -> None:
    client = browse(people.bob)
    wrong = client.post(f"{SCHEDULES}/preview", {"cron": "61 2 * * *", "zone": "UTC"})
    assert "61 is no minute." in text_of(wrong)
    assert "Enter a cron expression" in text_of(client.post(f"{SCHEDULES}/preview", {}))


def test_the_page_shows_runs_and_their_jobs_name_the_schedule(
    bob: Api, people: Personas, browse: Browse, machine: Machine
) -> None:
    create_nightly(bob)
    advance(at(10, 2))
    advance(at(11, 2))
    vera, (run, _) = browse(people.vera), runs_of(bob)
    page = html_of(vera.get(NIGHTLY))
    assert f"/p/vision/jobs/{run['job']}" in page
    assert "The run before it had not ended." in page
    assert "Run now" not in page  # only for those who may
    job_page = f"/p/vision/jobs/{run['job']}"
    assert "started by the schedule nightly" in text_of(vera.get(job_page))
    assert "The run before" not in html_of(vera.get(f"{NIGHTLY}?state=started"))
    assert "skipped" in text_of(vera.get(SCHEDULES))
    browse(people.bob).post(f"{NIGHTLY}/delete")
    assert "started by the schedule nightly (deleted)" in text_of(vera.get(job_page))
    assert vera.get(NIGHTLY).status_code == 404


def test_buttons_pause_resume_run_change_and_delete(
    bob: Api, people: Personas, browse: Browse, machine: Machine
) -> None:
    job, client = create_nightly(bob), browse(people.mia)
    client.post(f"{NIGHTLY}/pause")
    assert "paused Paused by Mia." in text_of(client.get(NIGHTLY))
    client.post(f"{NIGHTLY}/resume")
    assert ProjectSchedule.objects.get().owner == people.mia
    assert client.post(f"{NIGHTLY}/edit", _form(job, cron="0 2 * *")).status_code == 422
    client.post(f"{NIGHTLY}/edit", _form(job, cron="0 5 * * *", overlap="queue"))
    schedule = ProjectSchedule.objects.get()
    assert (schedule.cron, schedule.overlap, schedule.job_id) == ("0 5 * * *", "queue", job)
    client.post(f"{NIGHTLY}/run")
    assert "Run now by Mia" in text_of(client.get(NIGHTLY))
    assert "Runs that wait are left out: 1." in text_of(client.get(f"{NIGHTLY}/delete"))
    answer = client.post(f"{NIGHTLY}/delete")
    assert answer.headers["Location"] == SCHEDULES
    assert "No schedules yet" in text_of(client.get(SCHEDULES))


def test_pages_cost_as_many_queries_for_many_runs_as_for_few(
    bob: Api, people: Personas, browse: Browse, machine: Machine
) -> None:
    vera, job = browse(people.vera), create_nightly(bob)
    counts: list[list[int]] = []
    for days in (1, 5):
        for day in range(days):
            advance(at(10 + day + days, 2))
            end_job(bob, [run["job"] for run in runs_of(bob) if run["job"]][-1])
        body = _form(job, name=f"other-{days}")
        assert browse(people.bob).post(f"{SCHEDULES}/new", body).status_code == 302
        counts.append([])
        for address in (SCHEDULES, NIGHTLY):
            vera.get(address)
            with CaptureQueriesContext(connection) as queries:
                assert vera.get(address).status_code == 200
            counts[-1].append(len(queries))
    assert counts[0] == counts[1]
    assert max(counts[1]) <= MOST_QUERIES
