"""Kinds of workload, as the rooms above register them."""

from collections.abc import Iterator

import pytest

from tests.live import portal
from tests.portal.workloads.machines import stand_in_kinds

__all__ = ["portal"]


@pytest.fixture(autouse=True)
def _kinds() -> Iterator[None]:
    with stand_in_kinds():
        yield
