"""The page of a pipeline in a real browser: a graph that stays current, and an approval."""

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

import slipway as sdk
from slipway.pipeline_runs import run_pipeline
from tests.integration.browser.conftest import LOOKS, Open
from tests.integration.browser.test_axe import barriers_in_both, overflow
from tests.portals import RunningPortal

pytestmark = [pytest.mark.browser, pytest.mark.thorough]
STARTS_WITHIN_MS = 120_000
FLOW = """
import slipway


@slipway.step
def square(number: int) -> int:
    return number * number


@slipway.step
def add(numbers: list[int]) -> int:
    return sum(numbers)


@slipway.pipeline
def squares(numbers: list[int] = [2, 3]):
    total = add(square.map(number=numbers)())
    good = slipway.pipelines.approval(f"Total {total}?", approvers="owner")
    square.options(name="constructor", after=[good])(total)
"""
_BOXES = """() => [...document.querySelectorAll("[data-node]")].map((node) => {
    const { left, top, width, height } = node.getBoundingClientRect();
    return [node.dataset.node, left, top, width, height];
})"""

_GRAPH_AND_LOG = """() => ["#pipeline-graph", "[aria-labelledby=log-title]"].map((selector) =>
    document.querySelector(selector).getBoundingClientRect().toJSON())"""


def _boxes(page: Any) -> dict[str, list[float]]:
    return {name: box for name, *box in page.evaluate(_BOXES)}


def _in_order(boxes: dict[str, list[float]], axis: int) -> bool:
    """Return whether each step lies after the one before it, along an axis."""
    places = [boxes[name][axis] for name in ("square", "add", "approval", "constructor")]
    return places == sorted(set(places))


def test_a_graph_is_laid_out_kept_current_and_a_step_of_it_approved(
    portal: RunningPortal, window: Open, project: str, tmp_path: Path, axe: str
) -> None:
    (tmp_path / "flow.py").write_text(FLOW)
    with sdk.Client(portal.url, portal.tokens["alice"]) as client:
        file = tmp_path / "flow.py"
        run = run_pipeline(file, folder=tmp_path, project=project, client=client)
    alice = window("alice")
    page = alice.go(f"/p/{project}/pipelines").page
    page.get_by_role("link", name="squares", exact=True).click()
    alice.is_at(f"/p/{project}/pipelines/{run.id}")
    expect(page.locator(".flow-drawn [data-node]")).to_have_count(4)
    expect(page.locator(".flow-edges > path")).to_have_count(4)
    boxes = _boxes(page)
    # From the left to the right, or from above to below beside the log of a job that has started.
    axis = 0 if boxes["square"][0] < boxes["add"][0] else 1
    assert _in_order(boxes, axis)
    page.get_by_text("items of square have ended").click()
    decision = page.locator("#pipeline-decisions")
    expect(decision).to_contain_text("Total 13?", timeout=STARTS_WITHIN_MS)
    expect(page.get_by_text("2 of 2 items of square have ended")).to_be_visible()
    expect(page.locator("details[data-of=items-square]")).to_have_attribute("open", "")
    expect(page.locator(".flow-edges > path")).to_have_count(4)
    assert _in_order(_boxes(page), axis)
    looker = window("alice", bypass_csp=True).go(f"/p/{project}/pipelines/{run.id}")
    expect(looker.page.locator(".flow-drawn")).to_be_visible()
    assert overflow(looker) + barriers_in_both(looker, axe) == []

    alice.look(*LOOKS[1])
    assert _in_order(_boxes(page), 1)
    decision.get_by_label("Note").fill("As expected.")
    decision.get_by_role("button", name="Approve").click()
    alice.toast("Step approval is approved.")
    state = page.locator("#pipeline-state")
    expect(state).to_contain_text("succeeded", timeout=STARTS_WITHIN_MS)
    expect(page.locator("#pipeline-steps")).to_contain_text("Approved by Alice. As expected.")
    expect(page.get_by_role("button", name="Run again", exact=True)).to_be_visible()

    looker.look(*LOOKS[0])
    page = looker.go(f"/p/{project}/pipelines/{run.id}").page
    page.locator("#pipeline-steps").get_by_role("link", name="Log").first.click()
    expect(page.locator("[aria-labelledby=log-title]")).to_be_visible()
    expect(page.locator(".flow-drawn")).to_be_visible()
    graph, log = page.evaluate(_GRAPH_AND_LOG)
    assert log["left"] >= graph["right"], "the log is beside the graph"
    assert abs(log["top"] - graph["top"]) < 2
    assert _in_order(_boxes(page), 1)
