"""Schedules from the command line and in the SDK, against a real portal."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from slipway.cli.exits import ExitCode
from slipway.resources.jobs import job_body
from slipway.snapshots import take_snapshot
from tests.live import LivePortal
from tests.portal.training.lab import Lab, client_of
from tests.slipway.cli.conftest import Cli


@pytest.fixture(scope="module")
def lab(portal: LivePortal) -> Iterator[Lab]:
    """A node that runs nothing, and its tier."""
    made = Lab(portal)
    yield made
    made.end()


def _project(alice: Cli) -> str:
    project = f"schedules-{secrets.token_hex(4)}"
    assert alice("project", "create", project, "--slug", project).code == 0
    return project


def test_a_preview_shows_the_next_times_in_the_time_zone(alice: Cli) -> None:
    project = _project(alice)
    preview = ("schedule", "preview", "0 2 * * *", "--zone", "Asia/Tokyo", "--project", project)
    shown = alice(*preview, "--count", "3")
    assert shown.code == 0
    assert [line[-11:] for line in shown.out.strip().splitlines()] == ["02:00 +0900"] * 3
    times = alice(*preview, "--json").document["times"]
    assert len(times) == 5
    assert all(time.endswith("T02:00:00+09:00") for time in times)


def test_what_is_wrong_is_named_with_the_next_step(alice: Cli) -> None:
    project = _project(alice)
    place = ("--project", project, "--json")
    never = alice("schedule", "preview", "0 2 31 2 *", *place)
    assert (never.code, never.problem["field"]) == (ExitCode.INVALID, "cron")
    assert "31 February" in never.problem["next_step"]
    create = ("schedule", "create", "nightly", *place)
    without_cron = alice(*create, "--job", "wl_none")
    assert (without_cron.code, without_cron.problem["field"]) == (ExitCode.USAGE, "cron")
    no_event = alice(*create, "--on", "moon", "--job", "wl_none")
    assert (no_event.code, no_event.problem["field"]) == (ExitCode.USAGE, "on")
    no_dataset = alice(*create, "--on", "dataset:digits", "--job", "wl_none")
    assert no_dataset.code == ExitCode.INVALID
    without_job = alice(*create, "--cron", "0 2 * * *")
    assert (without_job.code, without_job.problem["field"]) == (ExitCode.USAGE, "job")
    no_such_job = alice(*create, "--cron", "0 2 * * *", "--job", "wl_none")
    assert (no_such_job.code, no_such_job.problem["field"]) == (ExitCode.INVALID, "job")
    unchanged = alice("schedule", "edit", "nightly", *place)
    assert unchanged.code == ExitCode.USAGE
    assert alice("schedule", "show", "nightly", *place).code == ExitCode.NOT_FOUND
    assert alice("schedule", "list", *place).document["items"] == []


def test_a_schedule_is_created_shown_changed_and_deleted(
    alice: Cli, portal: LivePortal, lab: Lab, tmp_path: Path
) -> None:
    project = _project(alice)
    (tmp_path / "train.py").write_text("print(1)\n")
    with (
        client_of(portal, "alice") as client,
        take_snapshot(tmp_path, script="train.py") as snapshot,
    ):
        client.snapshots.upload(snapshot, project=project)
        body = job_body(script="train.py", snapshot=snapshot.digest, tier=lab.tier)
        job = client.jobs.submit_body(body, project=project).workload.id
        place = ("--project", project)
        template = ("--cron", "0 2 * * *", "--zone", "Asia/Tokyo", "--job", job)
        created = alice("schedule", "create", "nightly", *template, *place)
        assert created.code == 0, created.err
        assert "02:00 +0900" in created.out
        assert f"job {job}" in created.out
        schedule = client.schedules.get("nightly", project=project)
        assert (schedule.missed, schedule.overlap) == ("once", "skip")
        changed = alice("schedule", "edit", "nightly", "--overlap", "queue", *place, "--json")
        assert changed.document["overlap"] == "queue"
        assert "starts within seconds" in alice("schedule", "run", "nightly", *place).out
        (run,) = client.schedules.runs("nightly", project=project)
        assert (run.state, run.requested_by) == ("waiting", "alice@example.org")
        for shown in (
            alice("schedule", "runs", "nightly", *place),
            alice("schedule", "list", *place),
        ):
            assert (shown.code, "waiting" in shown.out) == (0, True), shown.err
        assert "Paused by Alice." in alice("schedule", "pause", "nightly", *place).out
        assert client.schedules.resume("nightly", project=project).state == "active"
        deleted = alice("schedule", "delete", "nightly", "--yes", *place)
        assert (deleted.code, deleted.err.strip()) == (0, "Deleted nightly.")
        assert list(client.schedules.list(project=project)) == []


def test_a_pipeline_is_scheduled_from_its_file(
    alice: Cli, portal: LivePortal, lab: Lab, tmp_path: Path
) -> None:
    project = _project(alice)
    (tmp_path / "train.py").write_text("print(1)\n")
    (tmp_path / "digits.yaml").write_text(
        "name: digits\n"
        "parameters: {rows: 10, day: {type: string}}\n"
        f"steps: {{train: {{script: train.py, tier: {lab.tier}}}}}\n"
    )
    place = ("--project", project)
    source = ("--pipeline", str(tmp_path / "digits.yaml"), "--code", str(tmp_path))
    create = ("schedule", "create", "daily", "--cron", "0 4 * * *", *source, *place)
    without_day = alice(*create, "--json")
    assert (without_day.code, without_day.problem["field"]) == (ExitCode.INVALID, "parameters.day")
    made = alice(*create, "--param", "day=${schedule.time}", "--param", "rows=20")
    assert made.code == 0, made.err
    assert "pipeline digits" in made.out
    with client_of(portal, "alice") as client:
        schedule = client.schedules.get("daily", project=project)
        assert schedule.parameters == {"day": "${schedule.time}", "rows": 20}
        edit = ("schedule", "edit", "daily", "--param", "day=1", "--param", "rows=30", *place)
        assert alice(*edit).code == 0
        schedule = client.schedules.get("daily", project=project)
        assert schedule.parameters == {"day": "1", "rows": 30}
        by_webhook = alice("schedule", "edit", "daily", "--on", "webhook", *place)
        assert "webhook" in by_webhook.out, by_webhook.err
        url = alice("schedule", "hook", "daily", *place).out.strip()
        assert "/api/v1/hooks/slh_" in url
        called = httpx.post(url, json={"ref": "main"})
        assert called.status_code == 202, called.text
