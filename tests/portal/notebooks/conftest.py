"""A store of its own for each test, and people."""

from pathlib import Path

import pytest
from pytest_django import Settings

from portal.training.wiring import JOB
from portal.workloads.ports import register_kind
from tests.live import portal
from tests.personas import Api, Personas
from tests.portal.workloads.machines import Machine, make_machine, make_tier

__all__ = ["portal"]


@pytest.fixture(autouse=True)
def _store(settings: Settings, tmp_path: Path) -> None:
    settings.SLIPWAY_STORAGE_URL = f"file://{tmp_path / 'blobs'}"
    settings.DATA_DIR = tmp_path


@pytest.fixture(autouse=True)
def _kind() -> None:
    register_kind(JOB)


@pytest.fixture
def machine(people: Personas) -> Machine:
    """A machine of four CPUs, and the tier `small`: one CPU, 1 GiB, 3.6 USD an hour."""
    made = make_machine("lab")
    make_tier("small", nano_usd_per_hour=3_600_000_000)
    return made


@pytest.fixture
def bob(people: Personas) -> Api:
    """Bob, who contributes to the project vision."""
    return Api.of(people.bob)
