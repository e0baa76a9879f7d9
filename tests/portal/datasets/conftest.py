"""Fixtures of the datasets' tests: a store of their own."""

from pathlib import Path

import pytest
from pytest_django import Settings

from tests.live import portal

__all__ = ["portal"]


@pytest.fixture(autouse=True)
def _store(settings: Settings, tmp_path: Path) -> None:
    settings.SLIPWAY_STORAGE_URL = f"file://{tmp_path / 'blobs'}"
