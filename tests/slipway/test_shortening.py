"""Texts that are too long say so where they end."""

from slipway.schemas.truncation import shorten


def test_a_text_that_fits_stays_and_a_longer_one_says_how_long_it_was() -> None:
    assert shorten("x" * 50, 50) == "x" * 50
    cut = shorten("x" * 12_345, 100)
    assert len(cut) == 100
    assert cut.startswith("x" * 50)
    assert cut.endswith("x … (the beginning of 12,345 characters)")
    assert len(shorten("x" * 12_345, 10)) == 10
