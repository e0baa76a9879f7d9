"""Schedules from the command line, before there is a job to repeat."""

import secrets

from slipway.cli.exits import ExitCode
from tests.slipway.cli.conftest import Cli


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
    without_job = alice(*create, "--cron", "0 2 * * *")
    assert (without_job.code, without_job.problem["field"]) == (ExitCode.USAGE, "job")
    no_such_job = alice(*create, "--cron", "0 2 * * *", "--job", "wl_none")
    assert (no_such_job.code, no_such_job.problem["field"]) == (ExitCode.INVALID, "job")
    unchanged = alice("schedule", "edit", "nightly", *place)
    assert unchanged.code == ExitCode.USAGE
    assert alice("schedule", "show", "nightly", *place).code == ExitCode.NOT_FOUND
    assert alice("schedule", "list", *place).document["items"] == []
