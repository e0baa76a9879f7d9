"""Which checkpoints stay."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipway.distributed import Retention, StrategyNotPossible

pytestmark = pytest.mark.ranks

_saved = st.dictionaries(
    st.integers(0, 200), st.none() | st.floats(allow_nan=True, allow_infinity=True), max_size=30
)


@given(
    saved=_saved,
    last=st.integers(1, 5),
    every=st.none() | st.integers(1, 50),
    best=st.sampled_from([None, "min", "max"]),
)
def test_the_rule_keeps_what_it_promises_and_nothing_else(
    saved: dict[int, float | None], last: int, every: int | None, best: str | None
) -> None:
    kept = Retention(last=last, every=every, best=best).steps_to_keep(saved)  # type: ignore[arg-type]
    newest = set(sorted(saved)[-last:])
    assert newest <= kept <= saved.keys()
    regular = {step for step in saved if every and step % every == 0}
    assert regular <= kept
    measured = {step: m for step, m in saved.items() if m is not None and m == m}
    others = kept - newest - regular
    assert len(others) <= (best is not None)
    if best is not None and measured:
        ideal = (min if best == "min" else max)(measured.values())
        assert any(measured.get(step) == ideal for step in kept)


@pytest.mark.parametrize("rule", [{"last": 0}, {"every": 0}])
def test_a_rule_that_keeps_nothing_is_refused(rule: dict[str, int]) -> None:
    with pytest.raises(StrategyNotPossible, match="nothing to resume"):
        Retention(**rule)  # type: ignore[arg-type]
