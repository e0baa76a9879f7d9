"""A browser sends each server only that server's cookies, also when a colleague's link was opened.

All servers share an origin where there are no subdomains, so the paths of cookies are what keeps
the access of one person from the servers of others.
"""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Request

from tests.integration.notebooks.conftest import PATIENCE_MS
from tests.notebooks import PASSWORD, Person
from tests.portals import RunningPortal

pytestmark = pytest.mark.browser


class Visitor:
    """A person with a browser of its own that records which cookies were sent where."""

    def __init__(self, chromium: Browser, person: Person, email: str) -> None:
        self.person = person
        self.context: BrowserContext = chromium.new_context()
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        self.requests: list[Request] = []
        self.context.on("request", self._note)
        self.page.goto(f"{person.portal}/account/login")
        self.page.get_by_label("Email").fill(email)
        self.page.get_by_label("Password").fill(PASSWORD)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.wait_for_url(f"{person.portal}/")

    def _note(self, request: Request) -> None:
        self.requests.append(request)

    def open(self, server_url: str) -> int:
        """Follow a link to a server; returns the status of the page in the end."""
        answer = self.page.goto(server_url)
        assert answer is not None
        return answer.status

    def cookies(self) -> list[dict[str, Any]]:
        """Return all cookies the browser has."""
        return [dict(cookie) for cookie in self.context.cookies()]

    def names_sent_to(self, url: str) -> set[str]:
        """Return the names of the cookies that were sent to this address and below it."""
        sent = set()
        for request in self.requests:
            if request.url.startswith(url):
                header = request.all_headers().get("cookie", "")
                sent |= {part.partition("=")[0].strip() for part in header.split(";") if part}
        return sent


@pytest.fixture
def visitors(running: RunningPortal, bob: Person, chromium: Browser) -> Iterator[list[Visitor]]:
    """Alice and Bob."""
    alice = Person(running, "alice", PASSWORD)
    people = [
        Visitor(chromium, alice, "alice@example.org"),
        Visitor(chromium, bob, "bob@example.org"),
    ]
    yield people
    for visitor in people:
        visitor.context.close()


def _name_of(path: str) -> str:
    """Return the name of the cookie that opens the server at `/user/PERSON/SERVER/`."""
    _, kind, person, server, _ = path.split("/")
    return f"jupyterhub-{kind}-{person}-{server}"


@pytest.mark.thorough
def test_each_server_is_sent_its_own_cookies_alone(visitors: list[Visitor]) -> None:
    servers = [visitor.person.ready("cookies", tier="desk") for visitor in visitors]
    urls = [
        str(visitor.person.look(server)["url"])
        for visitor, server in zip(visitors, servers, strict=True)
    ]
    bases = [url.removesuffix("lab") for url in urls]
    for own, visitor in enumerate(visitors):
        assert visitor.open(urls[own]) == 200
        visitor.page.locator(".jp-LauncherCard").first.wait_for()
        assert visitor.open(urls[1 - own]) == 403, "a colleague's server"
    for own, visitor in enumerate(visitors):
        cookies = visitor.cookies()
        portal = {cookie["name"] for cookie in cookies if cookie["domain"] == "localhost"}
        notebooks = [cookie for cookie in cookies if cookie["domain"] != "localhost"]
        assert portal == {"slipway_session", "slipway_csrf", "slipway-theme"}
        assert {cookie["domain"] for cookie in notebooks} == {"127.0.0.2"}
        assert all(cookie["sameSite"] == "Lax" for cookie in cookies), cookies
        readable = {cookie["name"] for cookie in cookies if not cookie["httpOnly"]}
        assert readable <= {"_xsrf", "slipway-theme"}
        paths = {urlsplit(base).path for base in bases}
        assert {cookie["path"] for cookie in notebooks} <= {"/hub/", *paths}, notebooks
        path = urlsplit(bases[own]).path
        assert _name_of(path) in {cookie["name"] for cookie in notebooks if cookie["path"] == path}
        for base in bases:
            server_path = urlsplit(base).path
            sent = visitor.names_sent_to(base)
            others = {name for name in sent if not name.startswith(_name_of(server_path))}
            assert others <= {"_xsrf"}, f"sent to {server_path}"
        assert visitor.names_sent_to(visitor.person.notebooks).isdisjoint(portal)
    for visitor, server in zip(visitors, servers, strict=True):
        visitor.person.stop(server)
