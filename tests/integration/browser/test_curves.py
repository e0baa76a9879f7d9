"""Charts of many runs in a real browser: told apart, hidden, zoomed, grouped, shared by address."""

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.integration.browser.conftest import PATIENCE_MS, Window, address_of
from tests.integration.browser.test_axe import barriers
from tests.portals import RunningPortal
from tests.processes import wait_for

pytestmark = pytest.mark.browser
RUNS = 10
STEPS = 1_500
_LIST = "**/p/charts/runs?*"
_WATCH_ADDRESS = """() => {
  window.addressIsUpdated = new Promise((done) => {
    document.addEventListener("htmx:after:history:update", () => setTimeout(done));
  });
}"""
# The lines that ECharts draws, by name: a colour that it cannot parse draws none.
DRAWN = """(key) => {
  const element = document.querySelector(`figure[data-key="${key}"] .chart`);
  const chart = window.echarts.getInstanceByDom(element);
  return chart.getOption().series.map((line) => ({
    id: line.id, name: line.name, colour: line.color, dash: line.lineStyle.type,
    width: line.lineStyle.width, points: line.data.length,
    parses: window.echarts.color.parse(line.color) !== undefined,
  }));
}"""


@pytest.fixture(scope="module")
def lab(whole_slipway: Callable[[], RunningPortal]) -> RunningPortal:
    """All of Slipway, and the project charts of Alice's."""
    running = whole_slipway()
    with running.client("alice") as api:
        api.post("/projects", json={"name": "Charts", "slug": "charts"}).raise_for_status()
        path = f"{running.url}/mlflow/charts/api/2.0/mlflow/registered-models/search"
        wait_for(lambda: api.get(path).is_success, "answer of MLflow's server", within_s=60)
    return running


@pytest.fixture(scope="module")
def run_ids(lab: RunningPortal) -> list[str]:
    """Ten runs with a curve of 1,500 points each, two learning rates, and epochs of 100 steps."""
    return [_log_run(lab, number) for number in range(RUNS)]


def _log_run(lab: RunningPortal, number: int) -> str:
    with lab.client("alice") as api:
        address = f"{lab.url}/mlflow/charts/api/2.0/mlflow/runs"
        body = {"experiment_id": "0", "run_name": f"run-{number}", "start_time": 1_000_000}
        run_id = str(api.post(f"{address}/create", json=body).json()["run"]["info"]["run_id"])
        points = [
            {"key": key, "value": value, "step": at, "timestamp": 1_000_000 + 1000 * at}
            for at in range(STEPS)
            for key, value in (("loss", (number + 1) / (at + 1)), ("epoch", at / 100))
        ]
        params = [{"key": "lr", "value": "0.1" if number % 2 else "0.2"}]
        for start in range(0, len(points), 900):
            part: dict[str, Any] = {"metrics": points[start : start + 900]}
            logged = api.post(
                f"{address}/log-batch", json={"run_id": run_id, **part, "params": params}
            )
            assert logged.is_success, logged.text
        api.post(f"{address}/update", json={"run_id": run_id, "status": "FINISHED"})
    return run_id


def _compare(
    lab: RunningPortal, chromium: Browser, query: str, runs: int = RUNS
) -> tuple[Window, Page]:
    context = chromium.new_context(viewport={"width": 1280, "height": 860})
    window = Window(context.new_page(), address_of(lab))
    window.go("/account/login").sign_in("alice").is_at("/")
    window.go(f"/p/charts/compare?{query}")
    expect(window.page.locator('figure[data-key="loss"] .chart')).to_have_attribute(
        "data-total", str(runs * STEPS), timeout=PATIENCE_MS
    )
    return window, window.page


# The ends of the value axes that ECharts draws for these values, through the module of the page.
AXIS = """async ([module, name, type, values]) => {
  const { endOf } = await import(module);
  const element = document.createElement("div");
  document.body.append(element);
  const chart = window.echarts.init(element, null, { width: 400, height: 200 });
  chart.setOption({
    xAxis: { type: "category", data: values.map(String) },
    yAxis: { scale: type === "line", splitNumber: 3, max: endOf(name, type === "bar") },
    series: [{ type, data: values }],
  });
  const extent = chart.getModel().getComponent("yAxis").axis.scale.getExtent();
  chart.dispose();
  element.remove();
  return extent[1];
}"""


AXES: list[tuple[str, str, list[float], float]] = [
    ("Percent of values per bin", "bar", [97.0, 3.0], 100),  # 120 by itself
    ("system/gpu_utilization_percentage", "line", [2.0, 98.0], 100),
    ("accuracy", "line", [0.97, 0.97], 1),
    ("accuracy", "line", [0.81, 0.97], 1),
    ("f1", "bar", [1.0], 1),
    ("cpu_percent", "line", [90.0, 230.0], 250),  # of several cores: no share of one
    ("percent", "line", [1.0, 2.0], 2.1),  # low values keep a fitting axis
    ("loss", "line", [97.0, 3.0], 120),
    ("change", "line", [-0.5, 0.9], 1),
]


def test_an_axis_of_shares_ends_at_all_of_it(
    lab: RunningPortal, run_ids: list[str], chromium: Browser
) -> None:
    window, page = _compare(lab, chromium, f"run={run_ids[0]}", 1)
    ends = [
        page.evaluate(AXIS, ["/static/slipway/charts.js", name, kind, values])
        for name, kind, values, _ in AXES
    ]
    assert ends == pytest.approx([end for *_, end in AXES])
    page.context.close()
    assert window.faults == []


@pytest.mark.thorough
def test_every_run_has_a_line_that_can_be_told_apart(
    lab: RunningPortal, run_ids: list[str], chromium: Browser, axe: str
) -> None:
    window, page = _compare(lab, chromium, "&".join(f"run={run}" for run in run_ids))
    lines = page.evaluate(DRAWN, "loss")
    assert [line["name"] for line in lines] == [f"run-{number}" for number in range(RUNS)]
    assert all(line["parses"] for line in lines)
    assert len({(line["colour"], str(line["dash"])) for line in lines}) == RUNS
    legend = page.get_by_role("list", name="Runs in the charts")
    expect(legend.get_by_role("listitem")).to_have_count(RUNS)
    # Pointing at a chart names all runs there, the highest first, and removes no line.
    box = page.locator('figure[data-key="loss"] .chart').bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    names = page.locator(".curves-readout-name")
    expect(names).to_have_count(RUNS, timeout=PATIENCE_MS)
    assert names.all_inner_texts() == [f"run-{number}" for number in reversed(range(RUNS))]
    assert len(page.evaluate(DRAWN, "loss")) == RUNS
    assert barriers(window, axe) == []
    page.context.close()
    assert window.faults == []


def test_the_address_carries_what_is_hidden_pinned_smoothed_and_grouped(
    lab: RunningPortal, run_ids: list[str], chromium: Browser
) -> None:
    window, page = _compare(lab, chromium, "&".join(f"run={run}" for run in run_ids))
    page.get_by_label("Show run-0", exact=True).uncheck()
    page.get_by_role("button", name="Pin run-1: draw it bold and on top").click()
    page.get_by_role("button", name="Baseline: compare with run-2", exact=True).click()
    page.get_by_label("Smoothing").fill("0.5")
    page.get_by_label("Smoothing").dispatch_event("change")
    page.locator("[data-axis]").select_option("epoch")
    page.get_by_label("epoch", exact=True).uncheck()
    expect(page.locator('figure[data-key="epoch"]')).to_have_count(0)
    page.reload()
    expect(page.locator('figure[data-key="loss"] .chart')).to_have_attribute(
        "data-total", str((RUNS - 1) * STEPS), timeout=PATIENCE_MS
    )
    lines = {line["id"]: line for line in page.evaluate(DRAWN, "loss")}
    assert f"{run_ids[0]}:raw" not in lines
    assert lines[f"{run_ids[1]}:smooth"]["width"] > lines[f"{run_ids[3]}:smooth"]["width"]
    assert lines[f"{run_ids[2]}:smooth"]["dash"] == "dashed"
    expect(page.locator('figure[data-key="epoch"]')).to_have_count(0)
    expect(page.locator("[data-axis]")).to_have_value("epoch")
    page.get_by_label("Group by").select_option("lr")
    means = [line["name"] for line in page.evaluate(DRAWN, "loss") if line["id"].endswith(":mean")]
    assert means == ["lr 0.1", "lr 0.2"]
    page.context.close()
    assert window.faults == []


@pytest.mark.thorough
def test_zooming_in_fetches_the_points_of_that_part(
    lab: RunningPortal, run_ids: list[str], chromium: Browser
) -> None:
    window, page = _compare(lab, chromium, "&".join(f"run={run}" for run in run_ids))
    chart = page.locator('figure[data-key="loss"] .chart')
    note = page.locator('figure[data-key="loss"] [data-left-out]')
    expect(note).to_contain_text("of 15,000 points shown")
    box = chart.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 60, steps=5)
    page.mouse.up()
    expect(chart).not_to_have_attribute("data-total", "15000", timeout=PATIENCE_MS)
    expect(note).to_be_hidden()
    assert "zoom=" in page.url
    page.get_by_role("button", name="Reset zoom").click()
    expect(chart).to_have_attribute("data-total", "15000", timeout=PATIENCE_MS)
    page.get_by_role("button", name="Zoom in on the x axis").first.click()
    expect(chart).not_to_have_attribute("data-total", "15000", timeout=PATIENCE_MS)
    page.context.close()
    assert window.faults == []


def test_the_list_of_runs_has_charts_that_follow_its_filter(
    lab: RunningPortal, run_ids: list[str], chromium: Browser, axe: str
) -> None:
    context = chromium.new_context(viewport={"width": 1280, "height": 860})
    window = Window(context.new_page(), address_of(lab))
    window.go("/account/login").sign_in("alice").is_at("/")
    page = window.go("/p/charts/runs").page
    chart = page.locator('figure[data-key="loss"] .chart')
    expect(chart).to_have_attribute("data-total", str(RUNS * STEPS), timeout=PATIENCE_MS)
    expect(page.locator("[data-run-swatch] svg")).to_have_count(RUNS)
    assert barriers(window, axe) == []
    page.get_by_label("Choose all runs on this page").check()
    window.says(f"{RUNS} runs selected")
    page.locator("[data-axis]").select_option("epoch")
    page.locator("#filter").fill("params.lr = '0.1'")
    expect(chart).to_have_attribute("data-total", str(RUNS // 2 * STEPS), timeout=PATIENCE_MS)
    assert "x=epoch" in page.url
    charts = page.locator("[data-runs-charts]")
    # Leaving the field sends the filter again. Its answer comes after the charts were closed.
    held: list[Route] = []
    page.route(_LIST, lambda route: held.append(route))  # noqa: PLW0108 (it takes no builtin)
    page.evaluate(_WATCH_ADDRESS)
    with page.expect_request(_LIST):
        charts.locator("> summary").press("Enter")
    expect(chart).to_be_hidden()
    page.wait_for_url("**charts=0**", timeout=PATIENCE_MS)
    held[0].continue_()
    page.evaluate("() => window.addressIsUpdated")
    assert "charts=0" in page.url
    page.unroute(_LIST)
    page.reload()
    expect(charts.locator("> summary")).to_be_visible()
    expect(chart).to_be_hidden()
    page.context.close()
    assert window.faults == []


def test_the_address_that_mlflow_prints_opens_the_run(
    lab: RunningPortal, run_ids: list[str], chromium: Browser
) -> None:
    context = chromium.new_context(viewport={"width": 1280, "height": 860})
    window = Window(context.new_page(), address_of(lab))
    printed = f"#/experiments/1/runs/{run_ids[0]}"
    window.go(f"/mlflow/{printed}").sign_in("alice").is_at(f"/p/charts/runs/{run_ids[0]}")
    window.go("/projects").go(f"/mlflow/charts/{printed}").is_at(f"/p/charts/runs/{run_ids[0]}")
    window.go("/projects").go("/mlflow/charts/#/models/digits/versions/2")
    window.is_at("/p/charts/models/digits/versions/2")
    window.go("/projects").go("/mlflow/").is_at("/")
    context.close()
