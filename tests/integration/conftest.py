"""What all integration tests share: a browser, and a Slipway as long as the next test uses it."""

from collections.abc import Callable, Collection, Generator

import pytest
from playwright.sync_api import Browser

from tests import chromium as kept
from tests.portals import RunningPortal, running_slipway
from tests.shared import distrust_all, end_all_but, shared

# What takes longest, and what shares a Slipway that takes long to start, is not left to the end,
# where tests are divided among processes: small ones are.
_ORDER = ("test_demo.py", "test_budget.py", "notebooks", "browser", "serving")
_LAST = "api"
_WHOLE = {
    "SLIPWAY_LOGIN_FAILURES_PER_5_MINUTES": "1000",
    "SLIPWAY_EMBEDDED_GATEWAY": "true",
    "SLIPWAY_EMBEDDED_TRACKING": "true",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest, so that nobody waits for it alone at the end."""
    items.sort(key=_place_of)


def _place_of(item: pytest.Item) -> int:
    parts = item.path.parts
    if "integration" not in parts:
        return len(_ORDER)
    if _LAST in parts:
        return len(_ORDER) + 1
    return next((place for place, part in enumerate(_ORDER) if part in parts), len(_ORDER))


def _fixtures_of(item: pytest.Item | None) -> Collection[str]:
    return getattr(item, "fixturenames", ())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    """Show the event loop of the browser to tests of it alone, however often they are rerun."""
    try:
        if "chromium" not in _fixtures_of(item):
            return (yield)
        with kept.shown():
            return (yield)
    finally:
        end_all_but(_fixtures_of(nextitem))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Trust nothing that a test which failed has shared with others."""
    report = yield
    if report.failed:
        distrust_all()
    return report


def pytest_sessionfinish() -> None:
    """End what is shared, also when tests are interrupted."""
    kept.end()
    end_all_but(())


@pytest.fixture
def chromium() -> Browser:
    """The browser, without a window on the screen; what a test leaves open in it is closed."""
    return kept.browser()


@pytest.fixture(scope="session")
def whole_slipway(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], RunningPortal]:
    """Return all of Slipway with a node, a gateway and MLflow's server, which others use, too.

    To be called by the fixtures of a module, which make projects of names nobody else gives.
    """

    def get() -> RunningPortal:
        folder = tmp_path_factory.mktemp("whole")
        return shared("whole_slipway").get(lambda: running_slipway(folder, node=None, **_WHOLE))

    return get
