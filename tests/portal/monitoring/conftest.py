"""An endpoint that serves, and traffic that is captured."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings

from tests.personas import Api, Personas
from tests.portal.endpoints.conftest import gateway, lab, models
from tests.portal.endpoints.serving import Lab
from tests.portal.monitoring.captured import Traffic

__all__ = ["gateway", "lab", "models", "traffic"]


@pytest.fixture
def traffic(lab: Lab, people: Personas) -> Iterator[Traffic]:
    """The endpoint digits, watched by Bob without waiting for time to pass."""
    made = Traffic(lab, Api.of(people.bob))
    made.settings(window_at_least_s=0)
    yield made
    for name in ("predictions", "monitoring"):
        shutil.rmtree(Path(settings.DATA_DIR) / name, ignore_errors=True)
