"""A schedule from the page of a job to its first run, in a real browser, on a real node."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.integration.browser.conftest import Open
from tests.portals import RunningPortal

pytestmark = [pytest.mark.browser, pytest.mark.thorough]
STARTS_WITHIN_MS = 120_000


def test_a_job_is_scheduled_with_a_live_preview_and_run_at_once(
    portal: RunningPortal, window: Open, project: str, tmp_path: Path
) -> None:
    file = tmp_path / "train.py"
    file.write_bytes(b"print('by schedule')\n")
    alice = window("alice")
    page = alice.go(f"/p/{project}/jobs/new").page
    page.locator("#id_code").set_input_files(file)
    expect(page.locator("#code-state")).to_contain_text("uploaded")
    page.get_by_role("radio", name=re.compile("CPU small")).check()
    page.get_by_role("button", name="Submit job").click()
    page.wait_for_url(re.compile(r"/jobs/wl_"))

    page.get_by_role("link", name="Schedule", exact=True).click()
    preview = page.locator("#preview")
    expect(preview.locator("li")).to_have_count(5)
    page.get_by_label("Cron expression").fill("0 2 31 2 *")
    expect(preview).to_contain_text("it would never fire")
    page.get_by_label("Cron expression").fill("30 6 * * MON")
    page.get_by_label("Time zone").fill("Asia/Tokyo")
    expect(preview.locator("li").first).to_have_text(re.compile(r"Mon .*, 06:30 JST"))
    page.get_by_label("Name").fill("weekly")
    page.get_by_label("If the run before still goes on").select_option("queue")
    page.get_by_role("button", name="Create schedule").click()
    alice.toast("weekly created.")
    alice.is_at(f"/p/{project}/schedules/weekly")

    page.get_by_role("button", name="Run now").click()
    alice.toast("A run of weekly starts within seconds.")
    runs = page.locator("#runs-rows")
    expect(runs).to_contain_text("succeeded", timeout=STARTS_WITHIN_MS)
    runs.get_by_role("link", name="Job").click()
    alice.says("started by the schedule")
    page.get_by_role("link", name="weekly").click()
    page.get_by_role("link", name="Delete").click()
    page.get_by_role("button", name="Delete the schedule").click()
    alice.toast("weekly is deleted.")
    alice.is_at(f"/p/{project}/schedules")
