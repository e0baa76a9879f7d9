"""Launched, signed in to, worked in and stopped, through the real Hub, proxy and node."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.notebooks import SERVERS, Person, running_notebooks
from tests.personas import PASSWORD
from tests.portals import RunningPortal


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPortal]:
    """All of Slipway with notebooks."""
    with running_notebooks(tmp_path_factory.mktemp("notebooks")) as found:
        yield found


@pytest.fixture(scope="module")
def bob(running: RunningPortal) -> Person:
    """Bob, signed in to the portal."""
    return Person(running, "bob", PASSWORD)


def test_the_whole_way(bob: Person, tmp_path: Path) -> None:
    server = bob.ready(idle_minutes=30)
    desk = bob.open(server)
    assert "jupyter-config-data" in desk.page.text
    assert str(desk.page.url).startswith(desk.base)
    kernel = desk.kernel()
    said = desk.run(
        kernel,
        "import mlflow, slipway, os\n"
        "print(mlflow.get_tracking_uri(), os.environ['SLIPWAY_PROJECT'], os.getcwd())",
    )
    assert "/mlflow vision" in said, said
    assert said.strip().endswith("/workspace"), said
    assert bob.api.post(f"{SERVERS}/{server}/stop").is_success
    bob.wait_for(server, "stopped")
