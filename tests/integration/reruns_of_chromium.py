"""Tests that only `test_chromium.py` runs, in this order: the first fails once and is rerun."""

import asyncio

import pytest
from playwright.sync_api import Browser, Error

from portal.accounts.models import User
from tests.personas import Personas

_pages: list[str] = []


async def _answer() -> int:
    return 42


def test_a_page_that_is_what_it_shall_be_the_second_time(chromium: Browser) -> None:
    page = chromium.new_context().new_page()
    page.set_content("<h1>here</h1>")
    _pages.append(page.get_by_role("heading").inner_text())
    assert _pages == ["here", "here"]


def test_that_starts_a_loop_of_its_own() -> None:
    assert asyncio.run(_answer()) == 42


def test_a_page_after_a_loop_of_another_test(chromium: Browser) -> None:
    assert chromium.contexts == [], "what the test before left open is closed"
    page = chromium.new_page()
    page.set_content("<h1>again</h1>")
    assert page.get_by_role("heading").inner_text() == "again"


def test_a_browser_that_dies(chromium: Browser) -> None:
    with pytest.raises(Error):
        chromium.new_browser_cdp_session().send("Browser.crash")
    assert not chromium.is_connected()


def test_another_is_started(chromium: Browser) -> None:
    assert chromium.new_page().evaluate("6 * 7") == 42


def test_no_loop_is_left_at_the_end() -> None:
    assert asyncio.run(_answer()) == 42


def test_that_asks_the_database(people: Personas) -> None:
    assert User.objects.filter(pk=people.alice.pk).exists()


def test_the_database_goes_with_the_last_test_though_it_has_a_browser(chromium: Browser) -> None:
    assert chromium.new_page().evaluate("6 * 7") == 42
