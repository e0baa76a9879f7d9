"""Kinds of workload, as the rooms above register them."""

import pytest

from tests.live import portal
from tests.portal.workloads.machines import register_kinds

__all__ = ["portal"]


@pytest.fixture(autouse=True)
def _kinds() -> None:
    register_kinds()
