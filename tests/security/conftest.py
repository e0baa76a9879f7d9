"""Real portals for the tests that come in through a socket."""

from collections.abc import Iterator

import pytest

from tests.matrix.fixtures import _module_cast, cast, people
from tests.portals import RunningPortal, portal, running_portal

__all__ = ["_module_cast", "cast", "people", "portal", "proxied"]


@pytest.fixture(scope="session")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPortal]:
    """A portal that believes the X-Forwarded-* headers of two proxies in front of it."""
    with running_portal(
        tmp_path_factory.mktemp("proxied"),
        SLIPWAY_TRUSTED_PROXIES="2",
        SLIPWAY_PUBLIC_URL="https://slipway.example.org",
        SLIPWAY_LOG_FORMAT="json",
    ) as running:
        yield running
