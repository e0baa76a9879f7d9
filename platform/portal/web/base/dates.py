"""Relative times and durations for people, always next to the exact time."""

from datetime import UTC, datetime

_STEPS = (
    (60, 1, "second"),
    (3_600, 60, "minute"),
    (86_400, 3_600, "hour"),
    (30 * 86_400, 86_400, "day"),
    (365 * 86_400, 30 * 86_400, "month"),
)
_YEAR_S = 365 * 86_400
_NOW_S = 10


def relative_time(timestamp: datetime, now: datetime) -> str:
    """Return the distance of `timestamp` from `now`: `3 minutes ago`, `in 2 days`, `just now`.

    `static/slipway/moments.js` does the same in the browser, so that an open page does not age.
    """
    away_s = int((timestamp - now).total_seconds())
    size_s = abs(away_s)
    if size_s < _NOW_S:
        return "just now"
    unit_s, unit = next(
        ((seconds, name) for limit, seconds, name in _STEPS if size_s < limit), (_YEAR_S, "year")
    )
    # Round what is to come, so that 7 days are not "in 6 days" a second later.
    count = (size_s + unit_s // 2) // unit_s if away_s > 0 else size_s // unit_s
    words = f"{count} {unit}" + ("" if count == 1 else "s")
    return f"in {words}" if away_s > 0 else f"{words} ago"


def exact(timestamp: datetime) -> str:
    """Format a time to the second in UTC: `2026-11-20 19:30:05 UTC`."""
    return timestamp.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def lasting(seconds: float) -> str:
    """Return a duration in its two largest units: `12 s`, `3 min 20 s`, `2 d 4 h`.

    `static/slipway/counting.js` says the same in the browser, where durations count on.
    """
    if 0 < seconds < 1:
        return "< 1 s"
    left_s = max(0, int(seconds))
    parts: list[str] = []
    for size_s, unit in ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")):
        count, left_s = divmod(left_s, size_s)
        if count or (unit == "s" and not parts):
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])
