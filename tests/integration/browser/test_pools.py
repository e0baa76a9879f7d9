"""A pool from its form to its end, in a real browser, with an engine that runs real processes."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.integration.browser.conftest import Open, Window
from tests.integration.browser.test_axe import barriers_in_both, overflow
from tests.portals import RunningPortal

pytestmark = [pytest.mark.browser, pytest.mark.thorough]
SCRIPT = b"""
import time
print("started in the pool", flush=True)
time.sleep(600)
"""
STARTS_WITHIN_MS = 120_000


def _create(window: Window) -> None:
    """Create a local pool by the form, after a refusal that names the field."""
    page = window.go("/settings/pools").page
    window.says("No pools yet")
    page.get_by_role("link", name="New pool").click()
    page.get_by_label("Name").fill("twin")
    page.get_by_label("Engine", exact=True).select_option("local")
    page.get_by_label("Settings of the engine").fill("places=0")
    page.get_by_role("button", name="Create pool").click()
    expect(page.locator("#id_settings_error")).to_contain_text("from 1 to 64")
    expect(page.get_by_label("Name")).to_have_value("twin")
    page.get_by_label("Settings of the engine").fill("places=1")
    page.get_by_role("button", name="Create pool").click()
    window.toast("Pool twin created.")
    window.is_at("/settings/pools/twin")


def test_a_job_runs_in_a_pool_that_an_administrator_creates(
    portal: RunningPortal, window: Open, project: str, axe: str, tmp_path: Path
) -> None:
    root, alice = window("root", bypass_csp=True), window("alice", bypass_csp=True)
    _create(root)

    file = tmp_path / "train.py"
    file.write_bytes(SCRIPT)
    page = alice.go(f"/p/{project}/jobs/new").page
    page.locator("#id_code").set_input_files(file)
    expect(page.locator("#code-state")).to_contain_text("uploaded")
    page.get_by_label("Pool").select_option("twin")
    page.get_by_role("radio", name=re.compile("CPU small")).check()
    expect(page.locator("#quote")).to_contain_text("decides when it starts in pool twin")
    page.get_by_role("button", name="Submit job").click()
    page.wait_for_url(re.compile(r"/jobs/wl_"))
    log = page.locator("#log-lines")
    expect(log).to_contain_text("started in the pool", timeout=STARTS_WITHIN_MS)
    expect(page.locator("#workload-places")).to_contain_text("twin")
    job = page.url.removeprefix(alice.url)

    shown = root.page.locator("#pool")
    expect(shown).to_contain_text("1 of 8 in the engine")
    expect(shown.get_by_text("running")).to_be_visible()
    root.page.get_by_role("link", name="Remove…").click()
    root.says("Work waits or runs there (1).")
    root.page.get_by_role("button", name="Remove twin").click()
    root.toast("Work waits or runs in pool twin.")

    faults = []
    for seen, path in (
        (root, "/settings/pools"),
        (root, "/settings/pools/twin"),
        (alice, job),
        (alice, f"{job.partition('/jobs/')[0]}/jobs/new"),
    ):
        seen.go(path)
        faults += [*barriers_in_both(seen, axe), *overflow(seen)]
    assert faults == []

    with portal.client("alice") as api:
        job_id = job.rpartition("/")[2]
        api.post(f"/projects/{project}/jobs/{job_id}/cancel", json={}).raise_for_status()
    root.go("/settings/pools/twin")
    expect(shown).to_contain_text("0 of 8 in the engine, 0 more", timeout=STARTS_WITHIN_MS)
    root.page.get_by_role("link", name="Remove…").click()
    root.says("Nothing waits or runs there.")
    root.page.get_by_role("button", name="Remove twin").click()
    root.toast("Pool twin removed.")
    root.says("No pools yet")
