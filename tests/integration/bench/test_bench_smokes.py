"""Benchmarks run as processes at a tiny size. Their figures are not asserted."""

import pytest

from bench.run import SCRIPTS
from tests.benches import QUICK, SLOW

pytestmark = pytest.mark.integration


def test_every_benchmark_has_a_tiny_run() -> None:
    assert not set(QUICK) & set(SLOW)
    assert set(QUICK) | set(SLOW) == set(SCRIPTS)


@pytest.mark.parametrize("name", QUICK)
def test_the_benchmark_runs(name: str) -> None:
    QUICK[name].check(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_the_slow_benchmark_runs(name: str) -> None:
    SLOW[name].check(name)
