"""The page that compares runs in a real browser: brushes, axes and points, kept by the address."""

import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.integration.browser.conftest import PATIENCE_MS, Window, address_of
from tests.integration.browser.test_axe import barriers_in_both
from tests.portals import RunningPortal
from tests.processes import wait_for

pytestmark = pytest.mark.browser
RUNS = 12


@pytest.fixture(scope="module")
def lab(whole_slipway: Callable[[], RunningPortal]) -> RunningPortal:
    """All of Slipway, and the project compared of Alice's."""
    running = whole_slipway()
    with running.client("alice") as api:
        api.post("/projects", json={"name": "Compared", "slug": "compared"}).raise_for_status()
        path = f"{running.url}/mlflow/compared/api/2.0/mlflow/registered-models/search"
        wait_for(lambda: api.get(path).is_success, "answer of MLflow's server", within_s=60)
    return running


@pytest.fixture(scope="module")
def run_ids(lab: RunningPortal) -> list[str]:
    """Twelve runs: learning rates of several powers, two optimisers, a loss; one loss is NaN."""
    return [_log_run(lab, number) for number in range(RUNS)]


def _log_run(lab: RunningPortal, number: int) -> str:
    values: dict[str, Any] = {
        "loss": "NaN" if number == 11 else 0.1 * number,
        "acc": 1 - number / 20,
    }
    params = {
        "lr": str(10.0 ** -(number % 4)),
        "opt": ("adam", "sgd")[number % 2],
        "layers": str(number % 3),
    }
    with lab.client("alice") as api:
        address = f"{lab.url}/mlflow/compared/api/2.0/mlflow/runs"
        body = {"experiment_id": "0", "run_name": f"run-{number}", "start_time": 1_000_000}
        run_id = str(api.post(f"{address}/create", json=body).json()["run"]["info"]["run_id"])
        batch = {
            "run_id": run_id,
            "metrics": [
                {"key": key, "value": value, "step": 0, "timestamp": 1}
                for key, value in values.items()
            ],
            "params": [{"key": key, "value": value} for key, value in params.items()],
        }
        api.post(f"{address}/log-batch", json=batch).raise_for_status()
        api.post(f"{address}/update", json={"run_id": run_id, "status": "FINISHED"})
    return run_id


def _compare(lab: RunningPortal, chromium: Browser, run_ids: list[str]) -> tuple[Window, Page]:
    context = chromium.new_context(viewport={"width": 1280, "height": 860}, bypass_csp=True)
    window = Window(context.new_page(), address_of(lab))
    window.go("/account/login").sign_in("alice").is_at("/")
    window.go(f"/p/compared/compare?{'&'.join(f'run={run}' for run in run_ids)}")
    expect(window.page.locator("#relations")).to_have_attribute(
        "data-drawn", str(len(run_ids)), timeout=PATIENCE_MS
    )
    return window, window.page


def _query(page: Page) -> dict[str, list[str]]:
    return parse_qs(urlsplit(page.url).query)


def _selected(page: Page) -> list[str]:
    return page.locator("[data-parallel-table] tbody th").all_text_contents()


@pytest.mark.thorough
def test_brushes_axes_and_colours_are_there_again_when_the_address_is_opened(
    lab: RunningPortal, run_ids: list[str], chromium: Browser, axe: str
) -> None:
    window, page = _compare(lab, chromium, run_ids)
    relations = page.locator("#relations")
    # By pointer: the upper half of the axis of the accuracy.
    axis = page.locator('[data-axis-of="m:acc"] .compare-target')
    axis.scroll_into_view_if_needed()
    box = axis.bounding_box()
    assert box is not None
    middle = box["x"] + box["width"] / 2
    page.mouse.move(middle, box["y"] + 2)
    page.mouse.down()
    page.mouse.move(middle, box["y"] + box["height"] / 2, steps=4)
    page.mouse.up()
    names = _selected(page)
    assert names == [f"run-{number}" for number in range(6)]
    expect(relations).to_have_attribute("data-selected", "6")
    # By keyboard: a category, the limits of a number, a log axis, another order.
    page.locator("[data-parallel-axes] details summary").click()
    page.get_by_label("opt: sgd").press("Space")
    page.get_by_label("Largest loss").fill("0.3")
    page.get_by_label("Largest loss").press("Enter")
    page.get_by_label("Log axis for lr").press("Space")
    page.get_by_role("button", name="Move loss left").press("Enter")
    page.locator("[data-parallel-colour]").select_option("m:acc")
    assert _selected(page) == ["run-0", "run-2"]
    query = _query(page)
    assert [json.loads(text)[0] for text in query["brush"]] == ["m:acc", "p:opt", "m:loss"]
    assert (query["alog"], query["colour"]) == (["p:lr"], ["m:acc"])
    page.reload()
    expect(relations).to_have_attribute("data-selected", "2", timeout=PATIENCE_MS)
    assert _selected(page) == ["run-0", "run-2"]
    assert _query(page) == query
    expect(page.get_by_label("Log axis for lr")).to_be_checked()
    order = page.locator("[data-parallel-chart] [data-axis-of]").evaluate_all(
        "axes => axes.map((axis) => axis.dataset.axisOf)"
    )
    assert order == query["axis"]
    # NaN has no place on an axis, and is never selected by one.
    expect(page.locator("[data-parallel-note]")).to_contain_text("1 value is missing, NaN or inf")
    assert barriers_in_both(window, axe) == []
    window.look("light", {"width": 1280, "height": 860})
    page.get_by_role("link", name="Compare only these").click()
    window.says("2 runs side by side")
    page.context.close()
    assert window.faults == []


def test_points_of_the_scatter_plot_are_reached_by_keys_and_open_their_run(
    lab: RunningPortal, run_ids: list[str], chromium: Browser
) -> None:
    window, page = _compare(lab, chromium, run_ids)
    page.locator("[data-scatter-x]").select_option("m:loss")
    page.locator("[data-scatter-y]").select_option("m:acc")
    page.locator("[data-scatter-colour]").select_option("p:lr")
    relations = page.locator("#relations")
    expect(relations).to_have_attribute("data-points", "11")
    note = page.locator("[data-scatter-note]")
    expect(note).to_have_text("1 of 12 runs lacks a finite value of loss or acc.")
    page.locator("[data-scatter-xlog]").check()
    expect(relations).to_have_attribute("data-points", "10")
    expect(note).to_contain_text("1 run has a value of 0 or less and is not on a log axis.")
    chart = page.locator("[data-scatter-chart]")
    chart.press("ArrowRight")
    chart.press("ArrowRight")
    status = page.locator("[data-scatter-at]")
    expect(status).to_have_text("run-2, loss: 0.2, acc: 0.9, lr: 0.01")
    page.reload()
    expect(relations).to_have_attribute("data-points", "10", timeout=PATIENCE_MS)
    chart.press("Home")
    chart.press("Enter")
    window.is_at(f"/p/compared/runs/{run_ids[1]}")
    page.context.close()
    assert window.faults == []


@pytest.mark.thorough
def test_the_baseline_of_the_table_is_that_of_charts_and_code(
    lab: RunningPortal, run_ids: list[str], chromium: Browser
) -> None:
    window, page = _compare(lab, chromium, run_ids)
    table = page.locator("#values-table")
    expect(page.locator("#run-importance")).to_contain_text("Importance is epsilon squared")
    code = page.locator("#run-code select[name=base]")
    expect(code).to_have_value(run_ids[0])
    page.get_by_role("button", name="Baseline: compare with run-2", exact=True).click()
    expect(table.locator("thead th.values-base")).to_contain_text("run-2")
    expect(code).to_have_value(run_ids[2])
    table.get_by_role("button", name="loss").click()
    expect(table.locator("th[aria-sort=ascending]")).to_contain_text("loss")
    page.get_by_label("Only differences").check()
    expect(page).to_have_url(re.compile("only=1.*sort=metrics.loss"))
    page.reload()
    expect(table.locator("thead th").nth(2)).to_contain_text("run-0")
    expect(table.locator("thead th.values-base")).to_contain_text("run-2")
    pressed = page.get_by_role("button", name="Baseline: compare with run-2", exact=True)
    expect(pressed).to_have_attribute("aria-pressed", "true")
    page.context.close()
    assert window.faults == []
