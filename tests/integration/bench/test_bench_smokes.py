"""The larger benchmarks run as processes at a tiny size. Their figures are not asserted."""

import pytest

from tests.benches import HEAVY

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("name", HEAVY)
def test_the_benchmark_runs(name: str) -> None:
    HEAVY[name].check(name)
