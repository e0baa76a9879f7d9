"""How long predictions took, by buckets."""

from bisect import bisect_left

from hypothesis import given
from hypothesis import strategies as st

from slipway.schemas.serving import LATENCY_BOUNDS_MS
from workers.gateway.counters import RevisionCount

_BOUNDS_US = [bound * 1000 for bound in LATENCY_BOUNDS_MS]
_TIMES = st.integers(0, 2**32) | st.sampled_from([int(bound) for bound in _BOUNDS_US])


@given(st.lists(st.lists(_TIMES, max_size=9), max_size=4))
def test_each_is_counted_in_its_bucket(together: list[list[int]]) -> None:
    count = RevisionCount()
    for took_us in together:
        count.answer(took_us, 1)
    every = [duration_us for took_us in together for duration_us in took_us]
    places = [bisect_left(_BOUNDS_US, duration_us) for duration_us in every]
    report = count.to_report("rev-1")
    assert report.latency.counts == [places.count(at) for at in range(len(_BOUNDS_US) + 1)]
    assert report.latency.sum_ms == sum(every) / 1000
    assert report.answered == len(every)
