"""Every page of the URL table in Chromium: no serious barrier in either theme, nothing too wide.

The pages are those of the authorisation matrix, with one of everything in the project. Django's
test client answers the browser, in the transaction in which the matrix made its world.
"""

import asyncio
import mimetypes
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from django.contrib.staticfiles import finders
from django.test import Client
from playwright.sync_api import Request
from playwright.sync_api import Route as Sent

from portal.accounts.models import User
from tests.chromium import browser, shown
from tests.integration.browser.conftest import LOOKS, Window
from tests.integration.browser.test_axe import barriers_in_both, overflow
from tests.matrix import table
from tests.matrix.actors import Cast
from tests.matrix.bodies import query_for
from tests.matrix.fixtures import _module_cast, cast, people
from tests.matrix.world import values_for
from tests.routes import Route, routes

__all__ = ["_module_cast", "cast", "people"]
pytestmark = [pytest.mark.browser, pytest.mark.slow]

_PORTAL = "http://localhost:8000"
_HASHED = re.compile(r"\.[0-9a-f]{12}(?=\.\w+$)")
# A page of a busy machine still comes in the end.
_PATIENCE_MS = 120_000


class _Answers:
    """Answers all requests of a browser in the name of one person, or of nobody."""

    def __init__(self, user: User | None) -> None:
        self._client = Client(raise_request_exception=False)
        if user is not None:
            self._client.force_login(user)

    def __call__(self, sent: Sent, request: Request) -> None:
        address = urlsplit(request.url)
        if address.path.startswith("/static/"):
            body, kind, status = _static(unquote(address.path.removeprefix("/static/")))
        elif request.method != "GET" or address.path.endswith(("/events", "/follow")):
            body, kind, status = b"", "text/plain", 204
        else:
            body, kind, status = self._get(f"{address.path}?{address.query}", request)
            if request.is_navigation_request() and not kind.startswith("text/html"):
                # A download has no page to look at, and ends the navigation with an error.
                kind = "text/plain"
        sent.fulfill(status=status, content_type=kind, body=body)

    def _get(self, path: str, request: Request) -> tuple[bytes, str, int]:
        names = ("accept", "hx-request", "hx-target")
        headers = {name: request.headers[name] for name in names if name in request.headers}
        loop = asyncio._get_running_loop()
        asyncio._set_running_loop(None)
        try:
            answer: Any = self._client.get(path, headers=headers, follow=True)
            body = b"".join(answer.streaming_content) if answer.streaming else answer.content
        finally:
            asyncio._set_running_loop(loop)
        kind = answer.headers.get("Content-Type", "text/plain")
        is_download = answer.headers.get("Content-Disposition", "").startswith("attachment")
        return body, "text/plain" if is_download else kind, answer.status_code


def _static(name: str) -> tuple[bytes, str, int]:
    path = finders.find(name) or finders.find(_HASHED.sub("", name))
    if not isinstance(path, str):
        return b"", "text/plain", 404
    kind = mimetypes.guess_type(path)[0] or "application/octet-stream"
    return Path(path).read_bytes(), kind, 200


def _pages() -> list[tuple[str, Route]]:
    """Return who opens each page: its owner, else an administrator."""
    pages = []
    for route in routes():
        row = table.read().get((route.template, "GET"), {})
        column = next((column for column in ("own", "adm") if row.get(column) == "200"), "")
        is_page = not route.is_api or route.template == "/api/v1/docs"
        if column and is_page and not route.template.endswith(("/events", "/follow")):
            pages.append((column, route))
    return pages


@pytest.mark.parametrize(("column", "route"), _pages(), ids=lambda it: getattr(it, "template", ""))
def test_a_page_has_no_serious_barrier_and_is_no_wider_than_its_window(
    cast: Cast, axe: str, column: str, route: Route
) -> None:
    people = cast.world.people
    is_entrance = route.template.startswith("/account/password/reset")
    user = None if is_entrance else people.root if column == "adm" else people.alice
    answers = _Answers(user)
    path = route.path(**values_for(route, cast.world.own)) + query_for("GET", route.template)
    # Django refuses to work, or uses another connection, where Playwright's loop counts as running:
    # it does so in here alone.
    with shown():
        page = browser().new_context(viewport=LOOKS[0][1], bypass_csp=True).new_page()
        page.context.route("**/*", answers)
        window = Window(page, _PORTAL)
        page.set_default_timeout(_PATIENCE_MS)
        window.go(path)
        if not page.evaluate("document.querySelector('main, .entrance') !== null"):
            return  # a part of a page, or data
        page.wait_for_load_state("networkidle")
        _photograph(window, route)
        assert overflow(window) + barriers_in_both(window, axe) == []


def _photograph(window: Window, route: Route) -> None:
    """Save screenshots of both looks, if the environment names a folder for them."""
    if folder := os.environ.get("PICTURES"):
        name = re.sub(r"\W+", "-", route.template).strip("-") or "home"
        for theme, size in LOOKS:
            window.look(theme, size)
            window.page.wait_for_timeout(300)
            window.page.screenshot(path=f"{folder}/{name}-{theme}.png", full_page=True)
