"""From a run's model to an endpoint in a real browser: approved, served, promoted, taken back."""

import os
import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.integration.browser.conftest import LOOKS, PATIENCE_MS, WIDE, Window, address_of
from tests.integration.browser.test_axe import barriers_in_both
from tests.integration.serving.living import Endpoints
from tests.portals import RunningPortal

pytestmark = pytest.mark.browser
# A replica starts cold, on a machine that other tests keep busy.
STARTS_WITHIN_MS = 180_000
PROJECT = "/p/vision"
VERSION = f"{PROJECT}/models/double/versions"
ENDPOINT = f"{PROJECT}/endpoints/double"
_TABS = ("", "/traffic", "/monitoring", "/revisions", "/use", "/keys", "/logs", "/settings")


@pytest.fixture(scope="module")
def lab(whole_slipway: Callable[[], RunningPortal]) -> Iterator[Endpoints]:
    """All of Slipway with a node; the project vision of Alice's, to which Bob contributes."""
    running = whole_slipway()
    endpoints = Endpoints(running, owner="alice")
    invite = {"email": "bob@example.org", "role": "contributor"}
    link = endpoints.call("POST", "invitations", invite)["link"]
    with running.client("bob") as bob:
        token = {"token": link.rpartition("/")[2]}
        bob.post("/invitations/accept", json=token).raise_for_status()
    yield endpoints
    # Its replicas would take the room of what other modules run.
    endpoints.api.delete(f"{endpoints.path}/endpoints/double")


@pytest.fixture
def contexts(chromium: Browser) -> Iterator[list[BrowserContext]]:
    """Browsers that were opened; each is closed at the end."""
    opened: list[BrowserContext] = []
    yield opened
    for context in opened:
        context.close()


def open_as(lab: Endpoints, chromium: Browser, contexts: list[BrowserContext], name: str) -> Window:
    """Open a browser in which a person is signed in."""
    contexts.append(chromium.new_context(viewport=WIDE, bypass_csp=False))
    window = Window(contexts[-1].new_page(), address_of(lab.running))
    window.go("/account/login").sign_in(name).is_at("/")
    return window


def press(page: Page, name: str) -> None:
    """Press a button or follow a link by its words."""
    page.get_by_role("button", name=name).or_(page.get_by_role("link", name=name)).first.click()


def weight(page: Page, revision: int, percent: int, within_ms: int = PATIENCE_MS) -> None:
    """Wait until a revision is shown with that share of the traffic; nobody reloads the page."""
    shown = page.locator(f'[data-weight="{revision}"]')
    expect(shown).to_have_text(f"{percent} %", timeout=within_ms)


@pytest.mark.thorough
def test_a_model_goes_from_a_run_to_an_endpoint_and_back(
    lab: Endpoints, chromium: Browser, contexts: list[BrowserContext], axe: str
) -> None:
    alice = open_as(lab, chromium, contexts, "alice")
    bob = open_as(lab, chromium, contexts, "bob")
    _declare_gates(alice)
    run = lab.log(2)
    _register_and_ask(bob, run)
    lab.record(1, 2)
    _approve(alice)
    _promote_to_production(bob)
    _create(bob)
    _try(bob)
    _make_key(bob)
    tripling = lab.register(3, golden=3)
    _canary(bob, tripling)
    press(bob.page, "Roll back")
    bob.toast("Rolling back to the previous revision.")
    weight(bob.page, 1, 100)
    weight(bob.page, 2, 0)
    _read_the_log(bob)
    assert alice.faults + bob.faults == []
    # Now that every page has something to show.
    assert _serious_barriers(lab, chromium, axe) == []


def _declare_gates(alice: Window) -> None:
    page = alice.go(f"{PROJECT}/models").page
    press(page, "Set gates")
    page.get_by_label("Approval required").check()
    page.get_by_label("Dataset version").fill("digits:3")
    press(page, "Save gates")
    alice.says("An evaluation needs both")
    page.get_by_label("Dataset version").fill("")
    press(page, "Save gates")
    alice.toast("Rules saved.")
    alice.says("Stage Production")


def _register_and_ask(bob: Window, run: str) -> None:
    page = bob.go(f"{PROJECT}/register-model?run={run}").page
    page.get_by_label("Model").first.fill("double")
    press(page, "Register")
    bob.is_at(f"{VERSION}/1")
    page.get_by_role("link", name="Production…").click()
    bob.says("Nobody has requested approval of version 1")
    page.get_by_label("Note").fill("It doubles, as it should.")
    press(page, "Request approval")
    bob.toast("Approval requested. A maintainer who is not the author decides.")


def _approve(alice: Window) -> None:
    page = alice.go(f"{VERSION}/1/promote?stage=Production").page
    alice.says("It doubles, as it should.")
    press(page, "Approve")
    alice.toast("Request approved.")


def _promote_to_production(bob: Window) -> None:
    page = bob.go(f"{VERSION}/1/promote?stage=Production").page
    bob.says("has approved.")
    page.get_by_role("button", name="Promote", exact=True).click()
    bob.toast("Version 1 is now at the stage Production.")


def _create(bob: Window) -> None:
    page = bob.go(f"{VERSION}/1").page
    press(page, "New endpoint")
    page.get_by_label("Version").fill("Production")
    expect(page.locator("#quote")).to_contain_text("an hour")
    press(page, "Create endpoint")
    bob.is_at(ENDPOINT)
    expect(page.locator("#endpoint-state")).to_contain_text("Serving.", timeout=STARTS_WITHIN_MS)
    weight(page, 1, 100)


def _try(bob: Window) -> None:
    page = bob.go(ENDPOINT).page
    press(page, "Try it")
    expect(page.get_by_label("Request", exact=True)).to_have_value(re.compile("inputs"))
    press(page, "Send through the gateway")
    answer = page.locator("#trial-answer")
    expect(answer).to_contain_text("predictions", timeout=PATIENCE_MS)
    expect(answer).to_contain_text("200")
    page.get_by_label("Request", exact=True).fill("{")
    press(page, "Send through the gateway")
    expect(answer).to_contain_text("This is not JSON")


def _make_key(bob: Window) -> None:
    page = bob.page
    page.get_by_role("navigation", name="Endpoint").get_by_role("link", name="Keys").click()
    page.get_by_label("Client").fill("web shop")
    press(page, "Create key")
    bob.says("shown only once")
    key = page.locator("#endpoint-key").inner_text()
    press(page, "Done")
    bob.is_at(f"{ENDPOINT}/keys")
    assert key not in page.content()


def _canary(bob: Window, version: int) -> None:
    page = bob.go(f"{VERSION}/{version}").page
    press(page, "promote this version to double")
    expect(page.locator("#versions option[value='1']")).to_contain_text("Production")
    page.get_by_label("Canary steps, in percent").fill("50")
    page.get_by_label("Minutes per step").fill("0.2")
    page.get_by_role("button", name="Promote", exact=True).click()
    bob.is_at(ENDPOINT)
    weight(page, 2, 50, STARTS_WITHIN_MS)
    weight(page, 1, 50)
    weight(page, 2, 100, 60_000)
    weight(page, 1, 0)
    expect(page.locator("#endpoint-events")).to_contain_text(
        "Revision 2 is rolled out", timeout=60_000
    )


def _read_the_log(bob: Window) -> None:
    page = bob.page
    page.locator("#endpoint-replicas a").first.click()
    expect(page.locator(".log-lines")).to_contain_text("loaded", timeout=60_000)


def _serious_barriers(lab: Endpoints, chromium: Browser, axe: str) -> list[str]:
    window = Window(chromium.new_context(bypass_csp=True).new_page(), address_of(lab.running))
    window.go("/account/login").sign_in("alice").is_at("/")
    violations = []
    for page in (
        f"{PROJECT}/endpoints",
        *(f"{ENDPOINT}{part}" for part in _TABS),
        *(f"{ENDPOINT}{part}" for part in ("/promote", "/change", "/keys/new", "/delete", "/try")),
        f"{PROJECT}/new-endpoint?model=double",
        f"{PROJECT}/registry-rules",
        f"{VERSION}/1",
        f"{VERSION}/2/promote?stage=Production",
    ):
        violations += barriers_in_both(window.go(page), axe)
    window.go(ENDPOINT).page.locator("#endpoint-replicas a").first.click()
    violations += barriers_in_both(window, axe)
    for theme, size in LOOKS:
        window.look(theme, size)
        _photograph(window, theme)
    return violations


def _photograph(window: Window, theme: str) -> None:
    """Leave pictures of the pages where they are asked for."""
    folder = os.environ.get("PICTURES")
    if folder:
        for name, page in (
            ("list", f"{PROJECT}/endpoints"),
            ("endpoint", ENDPOINT),
            *((f"endpoint-{tab[1:]}", f"{ENDPOINT}{tab}") for tab in _TABS[1:]),
            ("promote", f"{ENDPOINT}/promote"),
            ("new", f"{PROJECT}/new-endpoint?model=double"),
            ("rules", f"{PROJECT}/registry-rules"),
        ):
            window.go(page).page.wait_for_timeout(600)
            path = f"{folder}/endpoints-{name}-{theme}.png"
            window.page.screenshot(path=path, full_page=True)
