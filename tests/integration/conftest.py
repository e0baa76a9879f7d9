"""The browser of all integration tests."""

from collections.abc import Generator

import pytest
from playwright.sync_api import Browser

from tests import chromium as kept


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Show the event loop of the browser to tests of it alone, however often they are rerun."""
    if "chromium" not in getattr(item, "fixturenames", ()):
        return (yield)
    with kept.shown():
        return (yield)


def pytest_sessionfinish() -> None:
    """End the browser, also when tests are interrupted."""
    kept.end()


@pytest.fixture
def chromium() -> Browser:
    """The browser, without a window on the screen; what a test leaves open in it is closed."""
    return kept.browser()
