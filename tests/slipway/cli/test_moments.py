"""Moments as people type them."""

from datetime import UTC, datetime, timedelta

import pytest

from slipway.cli.dates import parse_time
from slipway.cli.exits import UsageMistake

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, None),
        ("30m", NOW - timedelta(minutes=30)),
        ("7d", NOW - timedelta(days=7)),
        ("2w", NOW - timedelta(weeks=2)),
        ("2026-11-01", datetime(2026, 11, 1, tzinfo=UTC)),
        ("2026-11-01T15:04", datetime(2026, 11, 1, 15, 4, tzinfo=UTC)),
        ("2026-11-01T15:04:05Z", datetime(2026, 11, 1, 15, 4, 5, tzinfo=UTC)),
        ("2026-11-01T15:04+02:00", datetime(2026, 11, 1, 13, 4, tzinfo=UTC)),
    ],
)
def test_a_moment_is_a_date_a_time_or_so_long_ago(text: str | None, expected: datetime) -> None:
    assert parse_time(text, option="--since", now=NOW) == expected


@pytest.mark.parametrize("text", ["", "yesterday", "7", "999999w", "2026-13-01", "٣d"])
def test_anything_else_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageMistake) as caught:
        parse_time(text, option="--since", now=NOW)
    assert caught.value.field == "since"
