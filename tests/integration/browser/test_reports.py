"""A report written, shared and exported in a real browser, and opened by two readers."""

import httpx
import pytest
from playwright.sync_api import expect

from tests.integration.browser.conftest import WIDE, Open, address_of
from tests.integration.browser.test_axe import barriers_in_both
from tests.portals import RunningPortal

pytestmark = pytest.mark.browser


def log_run(portal: RunningPortal, project: str) -> str:
    """Log a run with a curve of three points, as any MLflow client does; returns its id."""
    with httpx.Client(
        base_url=f"{portal.url}/mlflow/{project}/api/2.0/mlflow/runs",
        headers={"Authorization": f"Bearer {portal.tokens['alice']}"},
        timeout=30,
    ) as client:
        body = {"experiment_id": "0", "run_name": "calm owl", "start_time": 1}
        created = client.post("/create", json=body)
        assert created.is_success, created.text
        run_id = str(created.json()["run"]["info"]["run_id"])
        metrics = [
            {"key": "loss", "value": 1 / (1 + step), "step": step, "timestamp": 1000 * step + 1}
            for step in range(3)
        ]
        logged = client.post("/log-batch", json={"run_id": run_id, "metrics": metrics})
        assert logged.is_success, logged.text
    return run_id


def test_a_report_is_written_with_a_chart_shared_and_exported(
    portal: RunningPortal, window: Open, project: str, axe: str
) -> None:
    run = log_run(portal, project)
    author = window("alice", bypass_csp=True).go(f"/p/{project}/reports/new")
    page = author.page
    page.get_by_label("Title").fill("Learning rates")
    page.get_by_role("button", name="Text", exact=True).click()
    page.get_by_label("Markdown").fill("The loss **falls**.")
    page.get_by_role("button", name="Chart of runs", exact=True).click()
    page.get_by_role("button", name="Add a run").click()
    page.get_by_role("searchbox", name="Choose a run").fill("owl")
    page.locator("#report-picker").get_by_role("button", name="calm owl").click()
    page.get_by_role("button", name="Add a metric").click()
    page.locator("#report-picker").get_by_role("button", name="loss").click()
    page.get_by_role("button", name="Move block 2 up").click()
    assert barriers_in_both(author, axe) == []
    author.look("light", WIDE)
    page.get_by_role("button", name="Create report").click()
    author.toast("Report Learning rates created.")
    expect(page.locator("figure .report-chart canvas")).to_be_visible()
    expect(page.locator(".report-block").first).to_contain_text("calm owl")
    assert barriers_in_both(author, axe) == []
    author.look("light", WIDE)
    address = page.url.removeprefix(author.url)
    page.get_by_role("button", name="Create a share link").click()
    link = page.locator("#share-link").inner_text().removeprefix(address_of(portal))
    author.go(address)
    with page.expect_download() as download:
        page.get_by_role("link", name="Export HTML").click()
    exported = download.value.path().read_text()
    assert "<polyline" in exported
    assert run not in exported
    reader = window("charlie").go(link)
    reader.says("falls")
    expect(reader.page.locator("svg.report-svg")).to_be_visible()
    assert reader.page.request.get(reader.url + address).status == 404


# Types, takes the first result and opens the next picker before the search for
# the typed letters starts. The answer about metrics comes after that search.
_FAST_HANDS = """() => {
  const send = window.fetch;
  window.fetch = async (address, ...rest) => {
    if (String(address).includes("kind=metric")) await new Promise((go) => setTimeout(go, 600));
    return send(address, ...rest);
  };
  const picker = document.getElementById("report-picker");
  const search = picker.querySelector("input");
  search.value = "owl";
  search.dispatchEvent(new Event("input"));
  picker.querySelector("li button").click();
  const buttons = [...document.querySelectorAll("button")];
  buttons.find((button) => button.textContent.includes("Add a metric")).click();
}"""


def test_a_picker_opened_right_after_another_finds_its_objects(
    portal: RunningPortal, window: Open, project: str
) -> None:
    log_run(portal, project)
    page = window("alice").go(f"/p/{project}/reports/new").page
    page.get_by_role("button", name="Chart of runs", exact=True).click()
    page.get_by_role("button", name="Add a run").click()
    picker = page.locator("#report-picker")
    expect(picker.get_by_role("button", name="calm owl")).to_be_visible()
    page.evaluate(_FAST_HANDS)
    picker.get_by_role("button", name="loss").click()
    expect(page.locator("#report-blocks")).to_contain_text("loss")
