"""When a request is sent again, and after how long."""

from datetime import UTC, datetime

import pytest

from slipway.retries import Retries, retry_after_s

NOW = datetime(2026, 11, 20, 12, 0, 0, tzinfo=UTC)


def test_the_wait_doubles_and_is_spread_around_its_middle() -> None:
    retries = Retries(attempts=5, first_wait_s=0.2)
    middle = [retries.wait_s(attempt, asked_s=None, jitter=0.5) for attempt in (1, 2, 3)]
    assert middle == pytest.approx([0.2, 0.4, 0.8])
    assert retries.wait_s(1, asked_s=None, jitter=0.0) == pytest.approx(0.1)
    assert retries.wait_s(1, asked_s=None, jitter=1.0) == pytest.approx(0.3)


def test_it_gives_up_after_the_last_attempt() -> None:
    assert Retries(attempts=3).wait_s(3, asked_s=None, jitter=0.5) is None
    assert Retries(attempts=1).wait_s(1, asked_s=0, jitter=0.5) is None


def test_it_never_comes_sooner_than_the_server_asks() -> None:
    for jitter in (0.0, 0.5, 1.0):
        wait = Retries(first_wait_s=0.2).wait_s(1, asked_s=7, jitter=jitter)
        assert wait is not None
        assert 7 <= wait <= 7.2


def test_it_gives_up_rather_than_wait_longer_than_allowed() -> None:
    assert Retries(longest_wait_s=5).wait_s(1, asked_s=6, jitter=0.5) is None
    late = Retries(attempts=30, longest_wait_s=5).wait_s(20, asked_s=None, jitter=1.0)
    assert late == 5


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("0", 0),
        ("120", 120),
        ("Fri, 20 Nov 2026 12:00:30 GMT", 30),
        ("Fri, 20 Nov 2026 11:00:00 GMT", 0),
        ("", None),
        ("-5", None),
        ("soon", None),
        ("1e9", None),
        ("9999999999", None),
        ("١٢", None),
    ],
)
def test_retry_after_is_read_as_seconds_or_a_date(header: str, seconds: int | None) -> None:
    assert retry_after_s({"retry-after": header}, now=NOW) == seconds


def test_without_a_retry_after_nothing_is_asked() -> None:
    assert retry_after_s({}) is None
