"""Tables that fit the terminal."""

from datetime import UTC, datetime, timedelta

import pytest

from slipway.cli.output import distance
from slipway.cli.tables import GAP, CellOverflow, ListColumn, widths_of

COLUMNS = [
    ListColumn("Id"),
    ListColumn("Name", fit=CellOverflow.WRAPPED),
    ListColumn("Scopes", fit=CellOverflow.CLIPPED, dispensable=2),
    ListColumn("Used", dispensable=1),
]
NATURAL = [30, 40, 100, 8]
NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def taken(widths: dict[int, int]) -> int:
    return sum(widths.values()) + GAP * (len(widths) - 1)


def test_a_wide_terminal_shows_everything_as_wide_as_it_is() -> None:
    assert widths_of(COLUMNS, NATURAL, 300) == {0: 30, 1: 40, 2: 100, 3: 8}


def test_the_room_that_is_left_goes_to_what_can_use_it() -> None:
    widths = widths_of(COLUMNS, NATURAL, 140)
    assert widths == {0: 30, 1: 40, 2: 53, 3: 8}
    assert taken(widths) == 140


def test_columns_that_matter_less_are_left_out_first() -> None:
    assert widths_of(COLUMNS, NATURAL, 80) == {0: 30, 1: 36, 3: 8}
    assert widths_of(COLUMNS, NATURAL, 50) == {0: 30, 1: 17}


def test_an_id_is_whole_on_any_terminal() -> None:
    for room in range(1, 200):
        assert widths_of(COLUMNS, NATURAL, room)[0] == 30


@pytest.mark.parametrize(
    ("span", "words"),
    [
        (timedelta(0), "now"),
        (timedelta(seconds=-59), "59s ago"),
        (timedelta(minutes=-5), "5m ago"),
        (timedelta(hours=-23, minutes=-59), "23h ago"),
        (timedelta(days=89, hours=5), "in 89d"),
    ],
)
def test_a_moment_is_told_by_its_distance(span: timedelta, words: str) -> None:
    assert distance(NOW + span, NOW) == words
