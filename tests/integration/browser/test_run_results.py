"""Results of a run in a real browser: sliders, charts, TensorBoard's files, a figure of Plotly."""

import json
from urllib.parse import quote

import httpx
import pytest
from playwright.sync_api import expect

from tests.integration.browser.conftest import PATIENCE_MS, Open
from tests.integration.browser.test_axe import barriers
from tests.portal.experiments.event_file_samples import CLASSIC, V2
from tests.portal.web.images import png
from tests.portals import RunningPortal

pytestmark = pytest.mark.browser

_MATRIX = {"type": "confusion_matrix", "labels": ["cat", "dog"], "matrix": [[8, 2], [1, 9]]}
_CURVES = [{"label": "cat", "x": [0, 0.1, 1], "y": [0, 0.8, 1]}]
_HISTOGRAM = {"type": "histogram", "edges": [0, 1, 2, 3], "counts": [1, 4, 2]}
_FIGURE = {"data": [{"x": [1, 2], "y": [3, 1], "type": "bar"}], "layout": {"title": {"text": "t"}}}
_TABLE = {"columns": ["name", "score"], "data": [["ann", 1], ["bob", 2]]}


def _run(running: RunningPortal, project: str, name: str, files: dict[str, bytes]) -> str:
    """Log files to a fresh run; returns its id."""
    at = f"{running.url}/mlflow/{project}/api/2.0"
    headers = {"Authorization": f"Bearer {running.tokens['alice']}"}
    with httpx.Client(headers=headers, timeout=60) as client:
        body = {"experiment_id": "0", "run_name": name, "start_time": 1}
        answer = client.post(f"{at}/mlflow/runs/create", json=body)
        info = answer.raise_for_status().json()["run"]["info"]
        place = info["artifact_uri"].removeprefix("mlflow-artifacts:/")
        for path, content in files.items():
            address = f"{at}/mlflow-artifacts/artifacts/{place}/{quote(path)}"
            client.put(address, content=content).raise_for_status()
    return str(info["run_id"])


# The texts of a chart that are not whole inside of it.
_CUT_OFF = """it => {
    const chart = window.echarts.getInstanceByDom(it);
    const isCut = (text) => {
        const box = text.getBoundingRect().clone();
        if (text.transform) box.applyTransform(text.transform);
        return box.x < 0 || box.y < 0
            || box.x + box.width > chart.getWidth() || box.y + box.height > chart.getHeight();
    };
    return chart.getZr().storage.getDisplayList()
        .filter((shape) => shape.type === "tspan" && isCut(shape))
        .map((shape) => shape.style.text);
}"""


def _files(value: int) -> dict[str, bytes]:
    images = {
        f"images/val~digits+step+{step}+timestamp+{step}+{'0' * 8}.png": png(value + step)
        for step in (0, 10, 20)
    }
    documents = {
        "charts/confusion.json": _MATRIX,
        "charts/roc.json": {"type": "roc_curve", "curves": _CURVES},
        "charts/weights+step+1.json": _HISTOGRAM,
        "charts/weights+step+2.json": _HISTOGRAM,
        "figure.json": _FIGURE,
        "predictions.json": _TABLE,
    }
    events = {"tb/a/events.out.tfevents.1.h": CLASSIC, "tb/b/events.out.tfevents.1.h": V2}
    bomb = {"bomb.png": png(0, 60_000, 60_000)}
    return images | bomb | events | {k: json.dumps(v).encode() for k, v in documents.items()}


def test_the_results_of_a_run_are_drawn(
    portal: RunningPortal, window: Open, project: str, axe: str
) -> None:
    runs = [_run(portal, project, f"run {value}", _files(value)) for value in (20, 120)]
    page = window("alice").go(f"/p/{project}/runs/{runs[0]}")
    results = page.page.locator("#results-place")
    gallery = results.locator("[data-gallery]", has_text="val/digits")
    # A busy machine takes a while to read the files of events.
    expect(gallery.locator("[data-step]")).to_have_text("step 20", timeout=4 * PATIENCE_MS)
    before = gallery.locator("img").get_attribute("src")
    gallery.locator("input").fill("0")
    expect(gallery.locator("[data-step]")).to_have_text("step 0")
    assert gallery.locator("img").get_attribute("src") != before
    assert gallery.locator("img").evaluate("it => it.decode().then(() => it.naturalWidth)") == 1
    expect(gallery.locator(".gallery-refused")).to_have_count(0)
    refused = results.get_by_text("up to 64 megapixels are shown")
    refused.scroll_into_view_if_needed()
    expect(refused).to_be_visible()
    expect(results.locator("[data-chart] [_echarts_instance_]")).to_have_count(3)
    drawn = results.locator("[data-chart] [_echarts_instance_]")
    assert [drawn.nth(at).evaluate(_CUT_OFF) for at in range(3)] == [[], [], []]
    expect(results.locator("[data-events][data-drawn]")).to_be_visible()
    expect(results.locator("[data-scalars] [_echarts_instance_]")).to_have_count(3)
    expect(results.locator("[data-histograms] [_echarts_instance_]")).to_have_count(2)
    assert barriers(page, axe) == []

    page.go(f"/p/{project}/runs/{runs[0]}?path=figure.json")
    frame = page.page.frame_locator("iframe.artifact-page")
    expect(frame.locator(".js-plotly-plot .bars")).to_be_visible(timeout=PATIENCE_MS)

    page.go(f"/p/{project}/compare?" + "&".join(f"run={it}" for it in runs))
    group = page.page.locator("[data-galleries]")
    group.locator("[data-common-slider]").fill("1")
    expect(group.locator("[data-common-step]")).to_have_text("step 10")
    assert group.locator("[data-gallery] [data-step]").all_text_contents() == ["step 10"] * 2
