"""A whole Slipway to break: real processes, one installation a test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.live import Live
from tests.processes import installation


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    """Yield a Slipway that runs."""
    with installation(tmp_path) as place:
        slipway = Live(place)
        slipway.start()
        yield slipway
