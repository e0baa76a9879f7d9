"""Rate limits while Redis does not answer, which in the tests it never does."""

import threading

import pytest
from limits import RateLimitItemPerMinute

from portal.api.throttle import api_throttle
from tests.personas import Api, Personas, json_of

pytestmark = pytest.mark.postgres


def test_counting_without_redis_starts_no_threads(people: Personas) -> None:
    alice = Api.of(people.alice)
    before = set(threading.enumerate())
    for _ in range(5):
        assert alice.get("whoami").status_code == 200
        assert set(threading.enumerate()) <= before


def test_without_redis_everybody_has_a_minute_of_their_own(
    people: Personas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_throttle, "limit", RateLimitItemPerMinute(2))
    alice, bob = Api.of(people.alice), Api.of(people.bob)
    answers = [alice.get("whoami") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert 1 <= int(answers[2].headers["Retry-After"]) <= 60
    assert json_of(answers[2])["code"] == "rate_limited"
    assert bob.get("whoami").status_code == 200
