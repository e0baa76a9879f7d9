"""The times of a cron expression in a time zone, by cronsim, which does as Debian's cron does.

Where clocks are put forward, an expression with a fixed hour runs right after the gap. Where they
are put back, it runs the first time only. One with a star in its minutes or hours follows the time
that passes.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from itertools import islice
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from portal.core.errors import InvalidInput

_FIELDS = 5
_RANGES = {
    "minute": "0-59",
    "hour": "0-23",
    "day-of-month": "1-31, or L for the last day",
    "month": "1-12 or JAN-DEC",
    "day-of-week": "0-7 or SUN-SAT, 0 and 7 being Sunday",
}
_EXAMPLE = "For example, 0 2 * * MON-FRI is 02:00 from Monday to Friday."


@cache
def zone_names() -> tuple[str, ...]:
    """Return the names of all time zones, in order."""
    return tuple(sorted(available_timezones()))


def zone_of(name: str) -> ZoneInfo:
    """Return a time zone. Raises InvalidInput if there is none of this name."""
    if name not in zone_names():
        raise InvalidInput(
            f"There is no time zone {name}.",
            code="no_such_zone",
            field="zone",
            next_step="Name one of the IANA database, such as UTC, Europe/Berlin or Asia/Tokyo.",
        )
    return ZoneInfo(name)


def check_cron(cron: str, zone: str, *, now: datetime) -> datetime:
    """Return the first time after `now`. Raises InvalidInput, naming the field."""
    place = zone_of(zone)
    fields = cron.split()
    if len(fields) != _FIELDS:
        raise _bad_cron(
            f"The cron expression has {len(fields)} field{'' if len(fields) == 1 else 's'}, not "
            f"{_FIELDS}.",
            "Write minute, hour, day of the month, month and day of the week. " + _EXAMPLE,
        )
    try:
        first = next(_times(cron, place, now), None)
    except CronSimError as error:
        raise _unreadable(cron, place, error) from error
    if first is None:
        raise _never()
    return first


def next_times(cron: str, zone: str, *, after: datetime, count: int) -> list[datetime]:
    """Return at most `count` times after `after`, in the time zone."""
    place = zone_of(zone)
    return [at.astimezone(place) for at in islice(_times(cron, place, after), count)]


def next_time(cron: str, zone: str, *, after: datetime) -> datetime | None:
    """Return the first time after `after`, in UTC, or None if there is none."""
    return next(_times(cron, zone_of(zone), after), None)


def times_between(cron: str, zone: str, *, first: datetime, until: datetime) -> Iterator[datetime]:
    """Return `first` and all times after it that are not after `until`, in UTC."""
    yield first
    for at in _times(cron, zone_of(zone), first):
        if at > until:
            return
        yield at


def _times(cron: str, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    """Return the times after `after`, in UTC.

    In the second of two equal hours cronsim begins with the times of the first one, which have
    passed.
    """
    last = after
    for local in CronSim(cron, after.astimezone(UTC if zone.key == "UTC" else zone)):
        at = local.astimezone(UTC)
        if at > last:
            yield at
            last = at


def _unreadable(cron: str, zone: ZoneInfo, error: CronSimError) -> InvalidInput:
    """Return the error for a field that cron cannot read, or for a day that no month has."""
    name = str(error).removeprefix("Bad ").strip()
    index = list(_RANGES).index(name) if name in _RANGES else None
    if index is None:
        return _bad_cron("The cron expression cannot be read.", _EXAMPLE)
    fields = cron.split()
    if name == "day-of-month" and _is_readable(f"* * {fields[2]} * *", zone):
        return _never()
    return _bad_cron(
        f"{fields[index]} is no {name.replace('-of-', ' of the ')}.",
        f"Allowed are {_RANGES[name]}, *, lists (1,15), ranges (1-5) and steps (*/2).",
    )


def _is_readable(cron: str, zone: ZoneInfo) -> bool:
    try:
        CronSim(cron, datetime.now(zone))
    except CronSimError:
        return False
    return True


def _never() -> InvalidInput:
    return _bad_cron(
        "No date matches the cron expression, so it would never fire.",
        "Change the day of the month or the month: 31 2, for example, is 31 February.",
    )


def _bad_cron(message: str, next_step: str) -> InvalidInput:
    return InvalidInput(message, code="bad_cron", field="cron", next_step=next_step)
