"""Amounts as people read and type them."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slipway.schemas.money import MAX_NANO_USD, dollars, parse_dollars, plain_dollars


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        (0, "$0.00"),
        (40_000_000, "$0.04"),
        (1_234_567_890_123, "$1,234.57"),
        (-2_500_000_000, "-$2.50"),
        (1_500_000, "$0.0015"),
        (12_000_000, "$0.012"),
        (1, "$0.000000001"),
    ],
)
def test_an_amount_is_shown_so_that_it_is_never_nothing(amount: int, shown: str) -> None:
    assert dollars(amount) == shown


@given(st.integers(min_value=1, max_value=10**15))
def test_no_amount_is_shown_as_nothing(amount: int) -> None:
    assert set(dollars(amount)) & set("123456789")


def test_dollars_are_counted_exactly() -> None:
    assert parse_dollars("0.1") == 100_000_000
    assert parse_dollars(" $3 ") == 3_000_000_000
    for text in ("", "x", "NaN", "inf", "1e-10", "0.0000000001", "-1", "1000000.01"):
        with pytest.raises(ValueError, match="amount"):
            parse_dollars(text)


@given(st.integers(min_value=0, max_value=MAX_NANO_USD))
@example(999_999_123_456_789)
def test_an_amount_in_a_form_is_the_same_when_it_is_sent_unchanged(amount: int) -> None:
    assert parse_dollars(plain_dollars(amount)) == amount
