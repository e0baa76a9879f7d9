"""From a logged run to an alert on Home, in a real browser, by a contributor and an approver."""

import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

import slipway
from tests.integration.browser.conftest import LOOKS, WIDE, Window, address_of
from tests.integration.browser.real_digits import train
from tests.portals import RunningPortal
from tests.processes import wait_for

pytestmark = pytest.mark.browser
# A replica starts cold, and the control worker looks every ten seconds, on a busy machine.
STARTS_WITHIN_MS = 180_000
ALERTS_WITHIN_S = 90.0


class Loop:
    """A project of Alice's to which Bob contributes, with two runs of his."""

    def __init__(self, running: RunningPortal, folder: Path) -> None:
        self.running = running
        self.slug = f"loop-{secrets.token_hex(3)}"
        self.path = f"/p/{self.slug}"
        self.client = slipway.Client(running.url, running.tokens["alice"])
        self.client.projects.create("Loop", slug=self.slug)
        with running.client("alice") as alice, running.client("bob") as bob:
            invite = {"email": "bob@example.org", "role": "contributor"}
            link = alice.post(f"/projects/{self.slug}/invitations", json=invite).json()["link"]
            token = {"token": link.rpartition("/")[2]}
            bob.post("/invitations/accept", json=token).raise_for_status()
        self.runs, self.digits = train(
            running, self.slug, folder, person="bob", regularizations=(0.001, 0.1)
        )

    def send_drifted(self) -> None:
        """Send rotated, noisy digits in two windows, the fewest that raise an alert."""
        key = self.client.endpoints.keys.create("digits", "camera", project=self.slug)
        endpoint = slipway.Endpoint("digits", key=key.key, project=self.slug, client=self.client)
        for images in np.array_split(self.digits.corrupted, 2):
            endpoint.predict(images.tolist())


@pytest.fixture
def loop(whole_slipway: Callable[[], RunningPortal], tmp_path: Path) -> Iterator[Loop]:
    """A project with two logged runs."""
    made = Loop(whole_slipway(), tmp_path)
    yield made
    names = [endpoint.name for endpoint in made.client.endpoints.list(project=made.slug)]
    for name in names:
        # Its replica would take the capacity of other modules.
        made.client.endpoints.delete(name, project=made.slug)
    made.client.close()


def press(page: Page, name: str) -> None:
    """Press the button or link with exactly this name."""
    button = page.get_by_role("button", name=name, exact=True)
    button.or_(page.get_by_role("link", name=name, exact=True)).first.click()


def photograph(window: Window, name: str) -> None:
    """Save a screenshot in both looks if the environment names a folder for them."""
    if folder := os.environ.get("PICTURES"):
        for theme, size in LOOKS:
            window.look(theme, size)
            window.page.wait_for_timeout(600)
            window.page.screenshot(path=f"{folder}/loop-{name}-{theme}.png", full_page=True)
        window.look(*LOOKS[0])


def test_a_logged_run_becomes_an_endpoint_whose_alert_is_on_home(
    loop: Loop, chromium: Browser
) -> None:
    contexts = [chromium.new_context(viewport=WIDE) for _ in range(2)]
    alice, bob = (Window(context.new_page(), address_of(loop.running)) for context in contexts)
    for window, name in ((alice, "alice"), (bob, "bob")):
        window.go("/account/login").sign_in(name).is_at("/")
    _require_approval(loop, alice)
    _compare_and_open_the_better(loop, bob)
    _register_and_request(loop, bob)
    _approve_from_home(loop, alice)
    _promote_and_deploy(loop, bob)
    _see_the_alert_on_home(loop, alice)
    assert alice.faults + bob.faults == []
    for context in contexts:
        context.close()


def _require_approval(loop: Loop, alice: Window) -> None:
    page = alice.go(f"{loop.path}/models").page
    press(page, "Set gates")
    page.get_by_label("Approval required").check()
    press(page, "Save gates")
    alice.toast("Rules saved.")


def _compare_and_open_the_better(loop: Loop, bob: Window) -> None:
    page = bob.go(f"{loop.path}/experiments").page
    page.get_by_role("link", name="Default").first.click()
    for name in ("C-0.001", "C-0.1"):
        page.get_by_label(f"Choose {name}", exact=True).check()
    photograph(bob, "runs")
    press(page, "Compare")
    bob.says("2 runs side by side")
    expect(page.locator("#relations")).to_have_attribute("data-drawn", "2")
    # One value a run is a bar a run.
    expect(page.locator("#curves .chart[data-bars]")).to_be_visible()
    photograph(bob, "compare")
    page.get_by_role("link", name="C-0.1", exact=True).first.click()
    bob.is_at(f"{loop.path}/runs/{loop.runs[1]}")
    photograph(bob, "run")


def _register_and_request(loop: Loop, bob: Window) -> None:
    page = bob.page
    press(page, "Register model")
    page.get_by_label("Model", exact=True).first.fill("digits")
    press(page, "Register")
    bob.is_at(f"{loop.path}/models/digits/versions/1")
    wait_for(
        lambda: loop.client.models.version("digits", 1, project=loop.slug).golden,
        "golden predictions",
        within_s=ALERTS_WITHIN_S,
        every_s=0.5,
    )
    page.get_by_role("link", name="Move to Production…").click()
    page.get_by_label("Note").fill("Better than C = 0.001.")
    press(page, "Request approval")
    bob.toast("Approval requested.")


def _approve_from_home(loop: Loop, alice: Window) -> None:
    page = alice.go("/").page
    request = page.locator("li", has_text="Waiting for you").filter(has_text="digits")
    expect(request).to_contain_text("Bob")
    photograph(alice, "home-request")
    request.get_by_role("link").first.click()
    alice.says("Better than C = 0.001.")
    press(page, "Approve")
    alice.toast("Request approved.")


def _promote_and_deploy(loop: Loop, bob: Window) -> None:
    version = f"{loop.path}/models/digits/versions/1"
    page = bob.go(f"{version}/promote?stage=Production").page
    press(page, "Promote")
    bob.toast("Version 1 is now at the stage Production.")
    bob.go(version)
    photograph(bob, "version")
    press(page, "Deploy")
    photograph(bob, "deploy")
    press(page, "Create endpoint")
    bob.is_at(f"{loop.path}/endpoints/digits")
    expect(page.locator("#endpoint-state")).to_contain_text("Serving.", timeout=STARTS_WITHIN_MS)


def _see_the_alert_on_home(loop: Loop, alice: Window) -> None:
    monitoring = loop.client.endpoints.monitoring
    # As small as a window may be, so that two requests are two windows.
    monitoring.change("digits", project=loop.slug, window_rows=200, window_at_least_s=0)
    loop.send_drifted()
    wait_for(
        lambda: monitoring.show("digits", project=loop.slug).alerts,
        "an alert",
        within_s=ALERTS_WITHIN_S,
        every_s=0.5,
    )
    page = alice.go("/").page
    alert = page.locator("section", has_text="Needs attention").locator("li", has_text="digits")
    expect(alert.first).to_contain_text("from the baseline in two windows in a row")
    photograph(alice, "home-alert")
    alert.first.get_by_role("link").first.click()
    alice.says("from the baseline in two windows in a row")
    photograph(alice, "alert")
