"""Moments as people type them."""

import re
from datetime import UTC, datetime, timedelta

from slipway.cli.exits import UsageMistake

_AGO = re.compile(r"([0-9]{1,6})([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def parse_moment(text: str | None, *, option: str, now: datetime | None = None) -> datetime | None:
    """Return the moment `text` means: a date, a date and time (UTC), or 30m, 12h, 7d, 2w ago.

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
            f"{option} {text!r} is not a moment.",
            field=option.lstrip("-"),
            next_step="Write 2026-11-20, 2026-11-20T15:04, or 7d for seven days ago.",
        ) from None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
