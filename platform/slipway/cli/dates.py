"""Parser for dates and times on the command line."""

import re
from datetime import UTC, datetime, timedelta

from slipway.cli.exits import UsageMistake

_AGO = re.compile(r"([0-9]{1,6})([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def parse_time(text: str | None, *, option: str, now: datetime | None = None) -> datetime | None:
    """Parse a date, a date and time (UTC), or an age such as 30m, 12h, 7d or 2w.

    Raises UsageMistake, naming `option`, for anything else.
    """
    if text is None:
        return None
    ago = _AGO.fullmatch(text)
    try:
        if ago:
            span = timedelta(**{_UNITS[ago[2]]: int(ago[1])})
            return (now or datetime.now(UTC)) - span
        parsed = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise UsageMistake(
            f"{option} {text!r} is not a valid time.",
            field=option.lstrip("-"),
            next_step="Write 2026-11-20, 2026-11-20T15:04, or 7d for seven days ago.",
        ) from None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
