"""Two machines with a cable, and a Slipway that both reach."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.live import Live
from tests.integration.training.cable import Cable
from tests.processes import installation


@pytest.fixture
def cable() -> Iterator[Cable]:
    if os.geteuid() != 0:
        pytest.skip("network namespaces can only be made by root")
    try:
        made = Cable()
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no network namespaces here: {error}")
    yield made
    made.remove()


@pytest.fixture
def live(tmp_path: Path, cable: Cable) -> Iterator[Live]:
    """A Slipway that listens to both namespaces, with no node of its own."""
    with installation(tmp_path) as place:
        assert place.manage("prepare", "--no-input").returncode == 0
        slipway = Live(place)
        names = ",".join(cable.gateways.values())
        slipway.start(SLIPWAY_BIND="0.0.0.0", SLIPWAY_ALLOWED_HOSTS=names)  # noqa: S104
        yield slipway
