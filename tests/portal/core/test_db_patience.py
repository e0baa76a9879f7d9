"""The time that a request may wait for the database, and what its 503 says."""

import pytest

from portal.core.db_errors import database_problem
from portal.core.db_patience import (
    QUEUE_S,
    STALL_S,
    DatabaseMissing,
    DatabaseUnavailable,
    LockWait,
    Patience,
    current,
    limited_by,
    note_saved,
    record_response,
)

pytestmark = pytest.mark.postgres


@pytest.fixture(autouse=True)
def _no_outage() -> None:
    record_response()


def test_statements_of_a_request_share_its_patience() -> None:
    patience = Patience()
    patience.spend(STALL_S / 2, progress=False)
    with pytest.raises(DatabaseUnavailable):
        patience.spend(STALL_S / 2, progress=False)


def test_a_request_waits_longer_while_others_make_progress() -> None:
    patience = Patience()
    others = LockWait(patience)
    for seen in range(int(QUEUE_S) - 1):
        others.spend(1.0, seen)
    with pytest.raises(DatabaseUnavailable):
        others.spend(1.0, "the last")


def test_a_lock_that_nobody_gives_back_is_no_progress() -> None:
    others = LockWait(Patience())
    others.spend(STALL_S / 2, "holder")
    with pytest.raises(DatabaseUnavailable):
        others.spend(STALL_S / 2, "holder")


def test_a_stall_that_ends_is_given_back() -> None:
    others = LockWait(Patience())
    for holder in range(5):
        others.spend(STALL_S / 3, holder)
        others.spend(STALL_S / 3, holder)


def test_later_requests_of_an_outage_wait_for_a_moment_only() -> None:
    with pytest.raises(DatabaseUnavailable):
        Patience().spend(STALL_S, progress=False)
    assert Patience().remaining_s < STALL_S / 2
    record_response()
    assert Patience().remaining_s == STALL_S


def test_waiting_for_a_thread_counts_and_leaves_one_try() -> None:
    assert Patience(queued_s=STALL_S / 2).remaining_s == pytest.approx(STALL_S / 2)
    assert 0 < Patience(queued_s=60).remaining_s < STALL_S / 2


def test_patience_ends_with_its_request() -> None:
    with limited_by(Patience()):
        assert current() is not None
    assert current() is None


def test_a_503_after_the_change_says_that_it_was_saved() -> None:
    with limited_by(Patience()):
        assert database_problem(DatabaseUnavailable()).code == "database_busy"
        note_saved()
        assert database_problem(DatabaseUnavailable()).code == "database_busy_after_change"
    assert database_problem(DatabaseUnavailable()).code == "database_busy"


@pytest.mark.parametrize(("is_replaced", "code"), [(False, "missing"), (True, "replaced")])
def test_a_file_that_is_missing_or_replaced_is_named(is_replaced: bool, code: str) -> None:
    problem = database_problem(DatabaseMissing("slipway.sqlite3", is_replaced=is_replaced))
    assert problem.code == f"database_{code}"
    assert "slipway.sqlite3" in problem.message
    assert "backup" in (problem.next_step or "")
