"""Jobs on pages: the list, one job and what it says, its end."""

from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from portal.training.models import Checkpoint, Job
from portal.web.models import LiveEvent
from portal.workloads.models import Workload
from portal.workloads.scheduling import run_passes
from tests.personas import Personas
from tests.portal.web.conftest import Browse
from tests.portal.web.labs import make_job, print_lines, run_job, use_store
from tests.portal.web.reading import html_of, text_of
from tests.portal.workloads.machines import Machine, finish, make_machine, make_tier
from tests.turns import thorough_after

COMMIT = "3f2a9c17e0b54d6f8a1c2e3d4b5a69788c7d6e5f"


@pytest.fixture
def machine(people: Personas, settings: Settings, tmp_path: Path) -> Machine:
    """A machine with two places of the tier small at 3.60 USD an hour."""
    use_store(settings, tmp_path)
    made = make_machine("lab-1", cpus=2, gib=8)
    make_tier("small", nano_usd_per_hour=3_600_000_000)
    return made


def _page(browse: Browse, people: Personas, job: Job, query: str = "") -> Any:
    return browse(people.vera).get(f"/p/vision/jobs/{job.pk}{query}")


def test_an_empty_list_offers_the_one_action_that_fills_it(
    people: Personas, browse: Browse
) -> None:
    assert "Run your first job" in text_of(browse(people.bob).get("/p/vision/jobs"))
    seen = text_of(browse(people.vera).get("/p/vision/jobs"))
    assert "No jobs yet" in seen
    assert "Run your first job" not in seen


def test_the_list_says_of_each_job_how_it_stands_and_why(
    people: Personas, browse: Browse, machine: Machine
) -> None:
    done = make_job(people.vision, people.bob, name="baseline")
    finish(run_job(done))
    run_job(make_job(people.vision, people.bob, name="wide", nodes=2))
    make_job(people.vision, people.alice, name="held up")
    make_job(people.vision, people.alice, name="behind")
    listed = text_of(browse(people.vera).get("/p/vision/jobs"))
    assert "baseline Completed. succeeded" in listed
    assert "wide Running on node lab-1. running small 2 \u00d7 1 Bob" in listed
    assert "held up Waiting: needs 1 CPU; node lab-1 has 0 CPUs free" in listed
    assert "behind Waiting: 1 is ahead of it in the queue of its project. waiting" in listed


@pytest.mark.parametrize(
    ("query", "shown"),
    thorough_after(
        4,
        [
            ("q=base", ["baseline"]),
            ("state=succeeded", ["baseline"]),
            ("state=waiting", ["wide"]),
            ("who=me", ["wide"]),
            ("q=train.py", ["baseline", "wide"]),
            ("tier=small", ["baseline", "wide"]),
            ("tier=other", []),
            ("sort=name", ["baseline", "wide"]),
        ],
    ),
)
def test_the_list_is_narrowed_down_by_the_address(
    people: Personas, browse: Browse, machine: Machine, query: str, shown: list[str]
) -> None:
    finish(run_job(make_job(people.vision, people.bob, name="baseline")))
    make_job(people.vision, people.alice, name="wide")
    listed = html_of(browse(people.alice).get(f"/p/vision/jobs?{query}"))
    assert [name for name in ("baseline", "wide") if f">{name}</a>" in listed] == shown


@pytest.mark.thorough
def test_a_list_of_thirty_asks_no_more_than_one_of_three(
    people: Personas, browse: Browse, machine: Machine
) -> None:
    vera = browse(people.vera)
    run_job(make_job(people.vision, people.bob, name="runs"))
    counts = []
    for batch in (3, 27):
        for _ in range(batch):
            make_job(people.vision, people.bob, nodes=2)
        vera.get("/p/vision/jobs")
        with CaptureQueriesContext(connection) as queries:
            assert vera.get("/p/vision/jobs").status_code == 200
        counts.append(len(queries))
    assert counts[0] == counts[1]
    assert counts[1] <= 30


def test_a_running_job_tells_where_what_it_costs_and_what_was_submitted(
    people: Personas, browse: Browse, machine: Machine
) -> None:
    job = make_job(
        people.vision,
        people.bob,
        name="wide",
        args=["--epochs", "3"],
        params={"lr": "0.2"},
        strategy="ddp",
        git={"commit": COMMIT, "branch": "main", "is_dirty": True, "diff": "+lr = 0.2\n"},
    )
    workload = run_job(job)
    print_lines(workload, "\x1b[32mepoch 1\x1b[0m\n  10%\r  90%\nepoch 2\n")
    Checkpoint.objects.create(job=job, step=40, size_bytes=2048, attempt=1)
    page = _page(browse, people, job)
    text = text_of(page)
    assert "running Running on node lab-1." in text
    assert "$3.60 an hour" in text
    assert "Parameters lr 0.2" in text
    assert "--epochs 3" in text
    assert "Strategy ddp" in text
    assert f"{COMMIT[:10]} on main" in text
    assert "40 resumes from here 2 KiB" in text
    assert "epoch 1 90% epoch 2" in text
    assert "10%" not in text
    assert "Attempt 1" in text
    assert "Placed on node lab-1." in text


def test_a_failed_job_says_why_and_what_to_do_next(
    people: Personas, browse: Browse, machine: Machine
) -> None:
    job = make_job(people.vision, people.bob, max_attempts=1)
    workload = run_job(job)
    finish(workload, reason="exit", exit_code=1, message="Rank 0 failed: ValueError: NaN")
    text = text_of(_page(browse, people, job))
    assert "failed Rank 0 failed: ValueError: NaN" in text
    assert "Next step:" in text


def test_a_log_never_becomes_markup(people: Personas, browse: Browse, machine: Machine) -> None:
    job = make_job(people.vision, people.bob, name="<b>bold</b>")
    print_lines(run_job(job), "<script>alert(1)</script>\n")
    page = html_of(_page(browse, people, job))
    assert "<script>alert(1)" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "<b>bold" not in page


def test_the_difference_to_the_commit_is_shown_line_by_line(
    people: Personas, browse: Browse, machine: Machine
) -> None:
    diff = "--- a/train.py\n+++ b/train.py\n@@ -1 +1 @@\n-lr = 0.1\n+lr = <0.2>\n"
    job = make_job(people.vision, people.bob, git={"commit": COMMIT, "diff": diff})
    page = html_of(_page(browse, people, job, "/diff"))
    assert '<span class="diff-removed">-lr = 0.1' in page
    assert '<span class="diff-added">+lr = &lt;0.2&gt;' in page


def test_cancelling_asks_first_and_ends_the_job(
    people: Personas, browse: Browse, machine: Machine
) -> None:
    bob = browse(people.bob)
    job = make_job(people.vision, people.bob, name="wide", procs=2)
    run_job(job)
    text = text_of(bob.get(f"/p/vision/jobs/{job.pk}/cancel"))
    assert "Cancel wide?" in text
    assert "All 2 ranks are asked to stop" in text
    answer = bob.post(f"/p/vision/jobs/{job.pk}/cancel", follow=True)
    assert "wide is stopping" in text_of(answer)
    assert Workload.objects.get(pk=job.pk).state == "stopping"


def test_viewers_see_jobs_and_cannot_touch_them(
    people: Personas, browse: Browse, machine: Machine
) -> None:
    job = make_job(people.vision, people.bob)
    vera = browse(people.vera)
    page = text_of(vera.get(f"/p/vision/jobs/{job.pk}"))
    assert "Clone with edits" not in page
    assert vera.post(f"/p/vision/jobs/{job.pk}/cancel").status_code == 403
    assert Workload.objects.get(pk=job.pk).state == "queued"


@pytest.mark.parametrize("page", ["", "/diff", "/cancel"])
def test_the_job_of_another_project_is_not_there(
    people: Personas, browse: Browse, machine: Machine, page: str
) -> None:
    theirs = make_job(people.other, people.charlie)
    run_job(theirs)
    alice = browse(people.alice)
    for address in (f"/p/vision/jobs/{theirs.pk}{page}", f"/p/vision/jobs/wl_missing{page}"):
        assert alice.get(address).status_code == 404
    assert alice.get(f"/p/other/jobs/{theirs.pk}{page}").status_code == 404


def test_every_move_of_a_job_rings_on_the_pages_of_its_project(
    people: Personas, machine: Machine, django_capture_on_commit_callbacks: Any
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        make_job(people.vision, people.bob)
    rung = LiveEvent.objects.filter(topic=people.vision.pk).values_list("what", flat=True)
    assert set(rung) == {"jobs"}
    assert not LiveEvent.objects.filter(topic=people.other.pk).exists()


def test_the_page_shows_the_build_a_job_waits_for_and_the_one_it_failed_by(
    people: Personas, browse: Browse, settings: Settings, tmp_path: Path
) -> None:
    use_store(settings, tmp_path)
    machine = make_machine("builder")
    make_tier("small")
    job = make_job(people.vision, people.bob, requirements="numpy==2.3.0")
    run_passes()
    digest = job.workload.environment

    def build(state: str, log: str, offset: int) -> None:
        report = {"state": state, "log_offset": offset, "log": log}
        answer = machine.call("POST", f"environments/{digest}/reports", report)
        assert answer.status_code == 200, answer.content

    build("building", "Collecting \x1b[31mnumpy\x1b[0m\n", 0)
    page = browse(people.vera).get(f"/p/vision/jobs/{job.pk}")
    assert "Collecting numpy" in text_of(page)
    assert "Running on node builder" in text_of(page)
    build("failed", "ERROR: no such version\n", 25)
    workload = Workload.objects.get(pk=job.pk)
    finish(workload, "environment_failed")
    page = browse(people.vera).get(f"/p/vision/jobs/{job.pk}")
    assert "no such version" in text_of(page)
    again = make_job(people.vision, people.bob, requirements="numpy==2.3.0")
    run_passes()
    page = browse(people.vera).get(f"/p/vision/jobs/{again.pk}")
    assert "no such version" not in text_of(page), "what failed another job is no news of this one"
