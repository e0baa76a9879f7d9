"""A real Chromium in front of a real portal."""

import secrets
from collections.abc import Callable, Iterator
from email import message_from_bytes
from email.policy import default
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, ViewportSize, expect

from tests.personas import PASSWORD
from tests.portals import RunningPortal
from tests.processes import wait_for

WIDE: ViewportSize = {"width": 1280, "height": 860}
NARROW = {"width": 390, "height": 844}
# The two that axe-core sees every page in: both themes, both widths.
LOOKS: tuple[tuple[Literal["light", "dark"], ViewportSize], ...] = (
    ("light", {"width": 1280, "height": 860}),
    ("dark", {"width": 390, "height": 844}),
)
# The machine may be busy; what a test waits for still comes in the end.
PATIENCE_MS = 15_000
expect.set_options(timeout=PATIENCE_MS)
Open = Callable[..., "Window"]


class Window:
    """One tab of one browser, and what went wrong in it."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.faults: list[str] = []
        page.set_default_timeout(PATIENCE_MS)
        page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        page.on("console", self._said)

    def _said(self, message: Any) -> None:
        # A 404 or 422 that a test provokes is reported by Chromium too; a blocked script is not it.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.faults.append(f"console: {message.text}")

    def go(self, path: str) -> "Window":
        """Open a page of the portal."""
        self.page.goto(self.url + path)
        return self

    def look(self, theme: Literal["light", "dark"], size: ViewportSize) -> None:
        """Change the theme of the system and the size of the window, as a person does."""
        self.page.set_viewport_size(size)
        self.page.emulate_media(color_scheme=theme)
        self.page.wait_for_selector(f"html[data-bs-theme={theme}]", state="attached")

    def says(self, words: str) -> None:
        """Wait until the page shows these words."""
        expect(self.page.get_by_text(words).first).to_be_visible(timeout=PATIENCE_MS)

    def toast(self, words: str) -> None:
        """Wait until a toast says these words."""
        expect(self.page.locator("#toasts", has_text=words)).to_be_visible(timeout=PATIENCE_MS)

    def is_at(self, path: str) -> None:
        """Wait until the address is this path."""
        self.page.wait_for_url(self.url + path, timeout=PATIENCE_MS)

    def sign_in(self, name: str, password: str = PASSWORD) -> "Window":
        """Sign in by the form that is shown."""
        self.page.get_by_label("Email").fill(f"{name}@example.org")
        self.page.get_by_label("Password").fill(password)
        self.page.get_by_role("button", name="Sign in").click()
        return self


@pytest.fixture(scope="module")
def portal(whole_slipway: Callable[[], RunningPortal]) -> RunningPortal:
    """One portal for all browser tests; each makes the projects it needs."""
    return whole_slipway()


def address_of(portal: RunningPortal) -> str:
    """Where people reach it: under the name that its links and mails carry."""
    return f"http://localhost:{portal.installation.portal_port}"


@pytest.fixture(scope="module")
def states() -> dict[str, Any]:
    """What the browser of each person who has signed in remembers."""
    return {}


@pytest.fixture
def signed_in(
    portal: RunningPortal, chromium: Browser, states: dict[str, Any]
) -> Callable[[str], Any]:
    """Sign each person in once, by the form; returns what their browser remembers."""

    def state_of(name: str) -> Any:
        if name not in states:
            context = chromium.new_context()
            window = (
                Window(context.new_page(), address_of(portal)).go("/account/login").sign_in(name)
            )
            window.is_at("/")
            states[name] = context.storage_state()
            context.close()
        return states[name]

    return state_of


@pytest.fixture
def window(
    portal: RunningPortal, chromium: Browser, signed_in: Callable[[str], Any]
) -> Iterator[Open]:
    """Open a fresh browser, signed in as somebody or as nobody; faults in it fail the test."""
    contexts: list[BrowserContext] = []
    opened: list[Window] = []

    def open_window(name: str | None = None, **options: Any) -> Window:
        options.setdefault("viewport", WIDE)
        state = signed_in(name) if name else None
        contexts.append(chromium.new_context(storage_state=state, **options))
        opened.append(Window(contexts[-1].new_page(), address_of(portal)))
        return opened[-1]

    yield open_window
    for context in contexts:
        context.close()
    assert [fault for each in opened for fault in each.faults] == []


@pytest.fixture
def project(portal: RunningPortal) -> str:
    """A fresh project of Alice in which Bob contributes; returns its slug."""
    with portal.client("alice") as alice, portal.client("bob") as bob:
        made = alice.post("/projects", json={"name": f"Vision {secrets.token_hex(4)}"}).json()
        invite = {"email": "bob@example.org", "role": "contributor"}
        link = alice.post(f"/projects/{made['slug']}/invitations", json=invite).json()["link"]
        bob.post("/invitations/accept", json={"token": link.rpartition("/")[2]}).raise_for_status()
    return str(made["slug"])


@pytest.fixture
def mail(portal: RunningPortal) -> Callable[[str], str]:
    """Wait for a mail to an address in the folder that stands for the mail server."""
    outbox = portal.installation.data_dir / "outbox"

    def to(address: str) -> str:
        for file in sorted(outbox.glob("*.log")):
            message = message_from_bytes(file.read_bytes(), policy=default)
            if message["To"] == address:
                return str(message.get_content())
        return ""

    return lambda address: wait_for(
        lambda: to(address), f"mail to {address}", within_s=60, every_s=0.1
    )


@pytest.fixture(scope="module")
def axe() -> str:
    """The source of axe-core, from the npm packages."""
    root = Path(__file__).resolve().parents[3]
    return (root / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")
