"""The API reference in a real browser: samples of each operation, by keyboard and on a phone."""

import os
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.integration.browser.conftest import NARROW, Open

pytestmark = pytest.mark.browser


def test_samples_of_an_operation_are_tabs_that_remember_the_language(
    window: Open, project: str
) -> None:
    alice = window("alice", viewport=NARROW, color_scheme="dark")
    page = alice.page
    alice.go("/api/v1/docs#/Account/whoami")
    operation = page.locator("#operations-Account-whoami")
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
    page.get_by_label("Find an operation").fill("list_jobs")
    page.locator("#operation-hits a[href='#/Jobs/list_jobs']").click()
    other = page.locator("#operations-Jobs-list_jobs")
    expect(other.locator(".samples").get_by_role("tabpanel")).to_contain_text(
        "slipway job list --project"
    )
    copy = other.get_by_role("button", name="Copy the sample: Command line")
    copy.click()
    expect(copy).to_contain_text("Cop")
    too_wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
    assert not page.evaluate(too_wide)
    alice.go("/api/v1/docs#/Account/whoami")
    page.reload()
    expect(operation.locator(".samples").get_by_role("tabpanel")).to_contain_text("slipway whoami")
    if folder := os.environ.get("PICTURES"):
        operation.locator(".samples").scroll_into_view_if_needed()
        page.screenshot(path=Path(folder) / "narrow-dark.png")
        wide = window("alice", viewport={"width": 1280, "height": 900}).page
        wide.goto(page.url.partition("#")[0] + "#/Jobs/create_job")
        wide.locator("#operations-Jobs-create_job .samples").scroll_into_view_if_needed()
        wide.screenshot(path=Path(folder) / "wide-light.png")


@pytest.mark.thorough
def test_groups_are_folded_and_the_address_and_the_search_open_operations(window: Open) -> None:
    alice = window("alice").go("/api/v1/docs")
    page = alice.page
    expect(page.locator("#operations-tag-Jobs")).to_be_visible()
    expect(page.locator(".opblock")).to_have_count(0)
    search = page.get_by_label("Find an operation")
    search.fill("zebra")
    expect(page.get_by_role("status").filter(has_text="No operation matches")).to_be_visible()
    search.fill("post jobs cancel")
    hits = page.locator("#operation-hits a")
    expect(hits.filter(has_text="/jobs/{job}/cancel")).to_be_visible()
    hits.filter(has_text="/jobs/{job}/cancel").click()
    cancel = page.locator("#operations-Jobs-cancel_job")
    expect(cancel.locator(".responses-wrapper")).to_be_visible()
    expect(cancel.locator(".opblock-summary-control")).to_be_focused()
    expect(cancel.locator(".parameters-container")).to_contain_text("Idempotency-Key")
    assert page.url.endswith("#/Jobs/cancel_job")
    create = page.locator("#operations-Jobs-create_job")
    create.locator(".opblock-summary-control").click()
    expect(create.locator(".parameters-container")).to_contain_text("Idempotency-Key")
    page.wait_for_url("**#/Jobs/create_job")
    link = page.url
    page.goto("about:blank")
    page.goto(link)
    expect(create.locator(".responses-wrapper")).to_be_visible()
    expect(page.locator(".opblock.is-open")).to_have_count(1)
    for text in ("#/Jobs/none", "#/<img src=x onerror=alert(1)>/x"):
        page.goto("about:blank")
        alice.go(f"/api/v1/docs{text}")
        expect(page.locator("#operations-tag-Jobs")).to_be_visible()
