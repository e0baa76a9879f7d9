"""Two projects with runs, and people who register and promote."""

from pathlib import Path

import pytest
from pytest_django import Settings

from tests.live import portal
from tests.personas import Api, Personas
from tests.portal.registry.store import Store

__all__ = ["portal"]


@pytest.fixture(autouse=True)
def _places(settings: Settings, tmp_path: Path) -> None:
    settings.SLIPWAY_STORAGE_URL = f"file://{tmp_path / 'blobs'}"
    settings.SLIPWAY_ARTIFACTS_URL = f"file://{tmp_path / 'artifacts'}"


@pytest.fixture
def store(people: Personas, tmp_path: Path) -> Store:
    """The runs of the project vision."""
    return Store(tmp_path / "artifacts", people.vision.pk)


@pytest.fixture
def bob(people: Personas) -> Api:
    """Bob, who contributes to the project vision."""
    return Api.of(people.bob)


@pytest.fixture
def mia(people: Personas) -> Api:
    """Mia, who maintains the project vision."""
    return Api.of(people.mia)
