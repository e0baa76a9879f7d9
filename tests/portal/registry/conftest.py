"""Two projects with runs, and people who register and promote."""

from pathlib import Path
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import TestCase
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


class Committing(Api):
    """A client whose requests commit, though the test as a whole is one transaction."""

    def call(self, *arguments: Any, **options: Any) -> HttpResponse:
        """Send one request, and do what follows its commit."""
        with TestCase.captureOnCommitCallbacks(execute=True):
            return super().call(*arguments, **options)


@pytest.fixture
def bob(people: Personas) -> Api:
    """Bob, who contributes to the project vision."""
    return Committing.of(people.bob)


@pytest.fixture
def mia(people: Personas) -> Api:
    """Mia, who maintains the project vision."""
    return Committing.of(people.mia)
