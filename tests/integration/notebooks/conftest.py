"""One Slipway with notebooks for all tests of the folder, and Bob, signed in."""

from collections.abc import Iterator

import pytest

from tests.notebooks import PASSWORD, Person, running_notebooks
from tests.portals import RunningPortal


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPortal]:
    """All of Slipway with the Hub, its proxy and a node."""
    with running_notebooks(tmp_path_factory.mktemp("notebooks")) as found:
        yield found


@pytest.fixture(scope="session")
def bob(running: RunningPortal) -> Person:
    """Bob, signed in to the portal."""
    return Person(running, "bob", PASSWORD)
