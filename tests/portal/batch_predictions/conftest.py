"""A place to predict in: that of jobs, a registered model, and data."""

from pathlib import Path

import pytest
from pytest_django import Settings

from tests.personas import Api, Personas
from tests.portal.batch_predictions.predicting import Place
from tests.portal.registry.store import Store
from tests.portal.training.conftest import _kind, machine
from tests.portal.web.conftest import browse
from tests.portal.workloads.machines import Machine

__all__ = ["_kind", "browse", "machine"]


@pytest.fixture(autouse=True)
def _store(settings: Settings, tmp_path: Path) -> None:
    settings.SLIPWAY_STORAGE_URL = f"file://{tmp_path / 'blobs'}"
    settings.SLIPWAY_ARTIFACTS_URL = f"file://{tmp_path / 'artifacts'}"
    settings.DATA_DIR = tmp_path


@pytest.fixture
def place(people: Personas, machine: Machine, tmp_path: Path) -> Place:
    """Bob predicts in the project vision, which has `prices` version 1 and `sales` version 1."""
    return Place(Api.of(people.bob), Store(tmp_path / "artifacts", people.vision.pk), machine)
