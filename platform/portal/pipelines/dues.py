"""The runs that follow from times that have come, by the rule for missed ones. No I/O."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from slipway.schemas.schedules import MissedRule

# A run that starts this much later than it was due has not been missed: a worker restarts in less.
GRACE = timedelta(minutes=5)
# Runs that the rule `all` makes up for, and runs that may wait for others.
MOST_MADE_UP = 100
MOST_WAITING = 100


@dataclass(frozen=True)
class SkippedTime:
    """A time for which nothing starts, and the reason."""

    at: datetime
    reason: str


@dataclass(frozen=True)
class Dues:
    """Times that have come. `current` is the newest, to which the rule for overlaps applies.

    `made_up` are missed ones that are run one after the other.
    """

    current: datetime | None = None
    made_up: Sequence[datetime] = ()
    skipped: SkippedTime | None = None


def dues_of(times: Iterable[datetime], rule: MissedRule, now: datetime) -> Dues:
    """Return what to do about `times`, all of which have come, in order."""
    newest: deque[datetime] = deque(maxlen=MOST_MADE_UP + 2)
    count = 0
    for at in times:
        newest.append(at)
        count += 1
    current = newest.pop() if newest and now - newest[-1] <= GRACE else None
    missed = count - (current is not None)
    if not missed:
        return Dues(current)
    if rule == "all":
        made_up = list(newest)[-MOST_MADE_UP:]
        left_out = missed - len(made_up)
        skipped = None
        if left_out:
            reason = (
                f"{_runs(left_out)} missed while Slipway was down. The {MOST_MADE_UP} after "
                f"{'it' if left_out == 1 else 'them'} were run: more are not made up for."
            )
            skipped = SkippedTime(list(newest)[-MOST_MADE_UP - 1], reason)
        return Dues(current, made_up, skipped)
    last = newest[-1]
    if rule == "skip":
        reason = f"{_runs(missed)} missed while Slipway was down, and missed runs are skipped."
        return Dues(current, skipped=SkippedTime(last, reason))
    if current is not None:
        reason = f"{_runs(missed)} missed while Slipway was down. The next run stands for all."
        return Dues(current, skipped=SkippedTime(last, reason))
    if missed == 1:
        return Dues(last)
    reason = f"{_runs(missed - 1)} missed while Slipway was down. The next run stands for all."
    return Dues(last, skipped=SkippedTime(newest[-2], reason))


def _runs(count: int) -> str:
    return "1 run was" if count == 1 else f"{count} runs were"
