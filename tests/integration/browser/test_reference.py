"""The API reference in a real browser: samples of each operation, by keyboard and on a phone."""

import os
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.integration.browser.conftest import NARROW, PATIENCE_MS, Open

pytestmark = pytest.mark.browser


def test_samples_of_an_operation_are_tabs_that_remember_the_language(
    window: Open, project: str
) -> None:
    alice = window("alice", viewport=NARROW, color_scheme="dark")
    page = alice.page
    # Hundreds of operations are drawn at once, beside other tests.
    page.set_default_timeout(12 * PATIENCE_MS)
    alice.go("/api/v1/docs")
    operation = page.locator("#operations-Account-whoami")
    operation.get_by_text("/api/v1/whoami").click()
    curl = operation.locator(".samples").get_by_role("tab", name="curl")
    expect(curl).to_have_attribute("aria-selected", "true")
    expect(operation.locator(".samples").get_by_role("tabpanel")).to_contain_text(
        "curl --fail-with-body http"
    )
    curl.focus()
    page.keyboard.press("ArrowRight")
    expect(operation.locator(".samples").get_by_role("tab", name="Python")).to_be_focused()
    expect(operation.locator(".samples").get_by_role("tabpanel")).to_contain_text("client.whoami()")
    page.keyboard.press("End")
    expect(operation.locator(".samples").get_by_role("tabpanel")).to_contain_text("slipway whoami")
    other = page.locator("#operations-Jobs-list_jobs")
    other.get_by_text("/jobs", exact=False).first.click()
    expect(other.locator(".samples").get_by_role("tabpanel")).to_contain_text(
        "slipway job list --project"
    )
    copy = other.get_by_role("button", name="Copy the sample: Command line")
    copy.click()
    expect(copy).to_contain_text("Cop")
    too_wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
    assert not page.evaluate(too_wide)
    alice.go("/api/v1/docs")
    operation.get_by_text("/api/v1/whoami").click()
    expect(operation.locator(".samples").get_by_role("tabpanel")).to_contain_text("slipway whoami")
    if folder := os.environ.get("PICTURES"):
        operation.locator(".samples").scroll_into_view_if_needed()
        page.screenshot(path=Path(folder) / "narrow-dark.png")
        wide = window("alice", viewport={"width": 1280, "height": 900}).page
        wide.set_default_timeout(4 * PATIENCE_MS)
        wide.goto(page.url)
        wide.locator("#operations-Jobs-create_job").get_by_text("/jobs").first.click()
        wide.locator("#operations-Jobs-create_job .samples").scroll_into_view_if_needed()
        wide.screenshot(path=Path(folder) / "wide-light.png")
