"""Benchmarks run as processes at a tiny size. Their figures are not asserted."""

import pytest

from bench.run import SCRIPTS
from tests.benches import HEAVY, LIGHT

# They take sizes as arguments, too, but no test runs them so far.
_WITHOUT = frozenset(
    {
        *("monitoring_live", "monitoring_load", "notebooks", "serving", "storage", "tracking"),
    }
)


def test_every_other_benchmark_has_a_tiny_run() -> None:
    assert not set(LIGHT) & set(HEAVY)
    assert set(LIGHT) | set(HEAVY) == set(SCRIPTS) - _WITHOUT


@pytest.mark.parametrize("name", LIGHT)
def test_the_benchmark_runs(name: str) -> None:
    LIGHT[name].check(name)
