"""Real digits, then rotated and noisy ones: the alarm, the truth below its estimate, new data."""

import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, expect

import slipway
from slipway.schemas.monitoring import MonitoringOut
from tests.integration.browser.conftest import LOOKS, WIDE, Window, address_of
from tests.integration.browser.real_digits import Digits, Table, train
from tests.integration.browser.test_axe import barriers_in_both, overflow
from tests.portals import RunningPortal
from tests.processes import wait_for

pytestmark = pytest.mark.browser
# A replica starts cold, and passes of the control worker come every ten seconds, on a busy machine.
STARTS_WITHIN_S = 180.0
LOOKS_WITHIN_S = 90.0
# As small as a window may be, so that two requests are two windows.
WINDOW_ROWS = 200


class Watched:
    """The endpoint of a project in a running Slipway, watched by windows of 200."""

    def __init__(self, running: RunningPortal, project: str, digits: Digits, key: str) -> None:
        self.running, self.project, self.digits = running, project, digits
        self.page = f"/p/{project}/endpoints/{project}/monitoring"
        self.predictions = f"{self.page}/predictions"
        self.client = slipway.Client(running.url, running.tokens["alice"])
        self.endpoint = slipway.Endpoint(project, key=key, project=project, client=self.client)

    def shown(self) -> MonitoringOut:
        """How it does, as the API tells."""
        return self.client.endpoints.monitoring.show(self.project, project=self.project)

    def send(self, images: Table, *own_ids: str) -> None:
        """Ask for predictions of images, in as many requests as there are ids."""
        for part, own_id in zip(np.array_split(images, len(own_ids)), own_ids, strict=True):
            self.endpoint.predict(part.tolist(), own_id=own_id)

    def label(self, *own_ids: str) -> None:
        """Say what the digits of a day were."""
        parts = np.array_split(np.array(self.digits.labels), len(own_ids))
        labels = [
            {"own_id": own_id, "row": row, "value": label}
            for own_id, part in zip(own_ids, parts, strict=True)
            for row, label in enumerate(part.tolist())
        ]
        self.endpoint.label_many(labels)

    def until(self, what: str, look: Any) -> None:
        """Wait until what the API shows is so."""
        wait_for(lambda: look(self.shown()), what, within_s=LOOKS_WITHIN_S, every_s=0.5)


@pytest.fixture
def watched(whole_slipway: Callable[[], RunningPortal], tmp_path: Path) -> Iterator[Watched]:
    """All of Slipway with a node, and an endpoint that serves a classifier of real digits.

    In a project of its own, whose name its endpoint has: a second try finds nothing of the first.
    """
    project = f"camera-{secrets.token_hex(3)}"
    running = whole_slipway()
    with slipway.Client(running.url, running.tokens["alice"]) as client:
        client.projects.create("Camera", slug=project)
        (run,), digits = train(running, project, tmp_path)
        client.models.register("digits", f"runs:/{run}/model", project=project)
        wait_for(
            lambda: client.models.version("digits", 1, project=project).golden,
            "golden predictions that were recorded by themselves",
            within_s=LOOKS_WITHIN_S,
            every_s=0.5,
        )
        client.endpoints.create(project, "digits", project=project, version=1)
        try:
            key = client.endpoints.keys.create(project, "camera", project=project)
            client.endpoints.monitoring.change(
                project, project=project, window_rows=WINDOW_ROWS, window_at_least_s=0
            )
            wait_for(
                lambda: client.endpoints.get(project, project=project).state == "serving",
                "an endpoint that serves",
                within_s=STARTS_WITHIN_S,
                every_s=0.5,
            )
            yield Watched(running, project, digits, key.key)
        finally:
            # Its replica would take the room of what other modules run.
            client.endpoints.delete(project, project=project)


@pytest.mark.thorough
def test_real_drift_alarms_and_the_truth_lies_below_its_estimate(
    watched: Watched, chromium: Browser, axe: str
) -> None:
    context = chromium.new_context(viewport=WIDE)
    window = Window(context.new_page(), address_of(watched.running))
    window.go("/account/login").sign_in("alice").is_at("/")
    window.go(f"/p/{watched.project}/endpoints/{watched.project}")
    window.page.get_by_role("link", name="Monitoring").last.click()
    window.says("Needs a window of at least 200 predictions.")
    _as_in_training(watched, window)
    _as_a_careless_camera_sends_them(watched, window)
    _as_it_turned_out(watched, window)
    _become_data(watched, window)
    _are_told_elsewhere_and_snoozed(watched, window)
    assert window.faults == []
    context.close()
    # Now that every page has something to show.
    _have_no_serious_barrier(watched, chromium, axe)


def _as_in_training(watched: Watched, window: Window) -> None:
    watched.send(watched.digits.images, "monday-1", "monday-2")
    watched.until("steady verdict", lambda shown: shown.verdict == "steady")
    assert watched.shown().alerts == []
    window.go(watched.page)
    window.says("No feature differs from the baseline.")
    window.says("449 rows that the run logged.")


def _as_a_careless_camera_sends_them(watched: Watched, window: Window) -> None:
    """Two windows' worth of corrupted digits, and not one more, raise the alarm."""
    watched.send(watched.digits.corrupted, "tuesday-1", "tuesday-2")
    watched.until("alert", lambda shown: any(raised.kind == "drift" for raised in shown.alerts))
    shown = watched.shown()
    (alert,) = [raised for raised in shown.alerts if raised.kind == "drift"]
    assert "differ from the baseline in two windows in a row: x[" in alert.reason
    assert shown.quality.estimate is not None
    assert shown.quality.is_calibrated
    assert shown.quality.figures == {}
    window.go(watched.page)
    window.says("differ from the baseline in two windows in a row")
    window.says("it cannot detect concept drift")
    window.says("Send labels")
    worst = window.page.get_by_role("region", name="Features and outputs").get_by_role("row").nth(1)
    expect(worst).to_contain_text("Drifted")


def _as_it_turned_out(watched: Watched, window: Window) -> None:
    watched.label("monday-1", "monday-2")
    watched.label("tuesday-1", "tuesday-2")
    rows = 2 * len(watched.digits.labels)
    watched.until("all labels", lambda shown: shown.quality.labelled == rows)
    quality = watched.shown().quality
    assert quality.estimate_low is not None
    assert quality.figures["accuracy"] < quality.estimate_low
    watched.until("alert", lambda shown: any(alert.kind == "quality" for alert in shown.alerts))
    window.go(watched.page)
    window.says("below the range of the estimate")
    window.says(f"{quality.figures['accuracy']:.4g}")
    window.says("Show 51 more")
    window.page.get_by_label("Slice: feature").fill("confidence")
    window.page.get_by_label("is", exact=True).select_option("<")
    window.page.get_by_label("Value").fill("0.5")
    window.page.get_by_role("button", name="Show", exact=True).click()
    window.says("rows of the slice confidence < 0.5")


def _become_data(watched: Watched, window: Window) -> None:
    page = window.go(watched.page).page
    page.get_by_role("link", name="Predictions", exact=True).click()
    page.get_by_role("link", name="prd_").first.click()
    expect(page.get_by_role("heading", name="Inputs").first).to_be_visible()
    window.go(watched.predictions)
    page.get_by_label("Feature").fill("confidence")
    page.get_by_label("is", exact=True).select_option("<")
    page.get_by_label("Value").fill("0.5")
    page.get_by_role("button", name="Filter").click()
    page.get_by_role("textbox", name="Dataset").fill("hard-digits")
    page.get_by_role("button", name="Create version").click()
    window.toast("hard-digits gets a new version within a minute.")
    client = watched.client
    wait_for(
        lambda: (
            next(
                iter(
                    client.endpoints.monitoring.selections(watched.project, project=watched.project)
                )
            ).version_state
            == "ready"
        ),
        "version of the dataset",
        within_s=LOOKS_WITHIN_S,
        every_s=0.5,
    )
    made = window.go(watched.predictions).page.get_by_role("link", name="hard-digits:1")
    expect(made).to_be_visible()
    made.click()
    window.says("with their labels.")
    expect(page.get_by_role("cell", name="label", exact=True).first).to_be_visible()
    graph = client.models.lineage("digits", 1, project=watched.project)
    (data,) = [node for node in graph.nodes if node.label == "hard-digits:1"]
    before = [edge.source for edge in graph.edges if edge.target == data.key]
    assert before == [f"predictions:{watched.project}/1"]
    page = window.go(f"/p/{watched.project}/models/digits/versions/1").page
    drawn = page.locator(".lineage-edges path")
    expect(drawn).to_have_count(len(graph.edges))
    assert all(drawn.nth(place).get_attribute("d") for place in range(len(graph.edges)))
    page.get_by_role("link", name="hard-digits:1").hover()
    expect(page.locator(".lineage-here.lineage-connected")).to_be_visible()
    page.get_by_role("link", name="hard-digits:1").click()
    window.is_at(f"/p/{watched.project}/datasets/hard-digits/v/1")


def _have_no_serious_barrier(watched: Watched, chromium: Browser, axe: str) -> None:
    window = Window(chromium.new_context(bypass_csp=True).new_page(), address_of(watched.running))
    window.go("/account/login").sign_in("alice").is_at("/")
    some = next(
        iter(
            watched.client.endpoints.monitoring.predictions(
                watched.project, project=watched.project
            )
        )
    )
    faults = []
    for name, path in (
        ("monitoring", watched.page),
        ("slice", f"{watched.page}?days=7&feature=confidence&operator=%3C&value=0.5"),
        ("predictions", watched.predictions),
        ("prediction", f"{watched.predictions}?prediction_id={some.prediction_id}&row=70"),
        ("watching", f"{watched.page}/watching"),
        ("data", f"/p/{watched.project}/datasets/hard-digits/v/1"),
        ("version", f"/p/{watched.project}/models/digits/versions/1"),
    ):
        page = window.go(path).page
        faults += [*barriers_in_both(window, axe), *overflow(window)]
        if folder := os.environ.get("PICTURES"):
            for theme, size in LOOKS:
                window.look(theme, size)
                page.wait_for_timeout(600)
                picture = f"{folder}/{name}-{size['width']}-{theme}.png"
                page.screenshot(path=picture, full_page=True)
    assert faults == []
    assert window.faults == []


def _are_told_elsewhere_and_snoozed(watched: Watched, window: Window) -> None:
    page = window.go(f"{watched.page}/watching").page
    page.get_by_label("Kind").select_option("webhook")
    page.get_by_label("Address").fill("https://169.254.169.254/latest")
    page.get_by_role("button", name="Add").click()
    window.says("private network address")
    page.get_by_label("Address").fill("https://example.org/hook")
    page.get_by_role("button", name="Add").click()
    window.says("shown only once")
    window.go(watched.page)
    page.get_by_role("button", name="Snooze for a day").first.click()
    window.toast("Alert snoozed for a day.")
    window.says("snoozed until")
