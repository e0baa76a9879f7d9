"""One Slipway with notebooks for all tests of the folder, Bob, signed in, and a browser."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.notebooks import PASSWORD, SERVERS, Person, running_notebooks
from tests.portals import RunningPortal
from tests.shared import shared

# The machine may be busy; what a test waits for still comes in the end.
PATIENCE_MS = 90_000
expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> RunningPortal:
    """All of Slipway with the Hub, its proxy and a node."""
    folder = tmp_path_factory.mktemp("notebooks")
    return shared("running").get(lambda: running_notebooks(folder))


@pytest.fixture(scope="module")
def bob(running: RunningPortal) -> Person:
    """Bob, signed in to the portal."""
    return Person(running, "bob", PASSWORD)


@pytest.fixture(autouse=True)
def home(bob: Person) -> Iterator[None]:
    """Bob goes home and tidies up: what runs takes the room of all others, and he may have few."""
    yield
    for server in bob.api.get(SERVERS, params={"mine": "true", "limit": 100}).json()["items"]:
        if server["state"] in ("stopped", "failed"):
            bob.api.delete(f"{SERVERS}/{server['id']}")
        elif server["state"] != "stopping" and server["tier"] != "desk":
            bob.api.post(f"{SERVERS}/{server['id']}/stop")


@pytest.fixture
def page(chromium: Browser, bob: Person) -> Iterator[Page]:
    """A tab of Bob's browser, signed in to the portal by its form."""
    context = chromium.new_context(viewport={"width": 1280, "height": 860})
    context.set_default_timeout(PATIENCE_MS)
    new_page = context.new_page()
    new_page.goto(f"{bob.portal}/account/login")
    new_page.get_by_label("Email").fill("bob@example.org")
    new_page.get_by_label("Password").fill(PASSWORD)
    new_page.get_by_role("button", name="Sign in").click()
    new_page.wait_for_url(f"{bob.portal}/")
    yield new_page
    context.close()
