"""Lengths of time as people type them: 15m, 1h, 90 minutes."""

import re
from typing import Final

_LENGTH: Final = re.compile(r"(?P<number>[0-9]{1,6}) *(?P<unit>m|min|minutes?|h|hours?)?")
_MINUTES_AN_HOUR: Final = 60


def minutes_of(text: str) -> int | None:
    """Return the minutes of a text such as `15m`, `1h` or `15`, None for anything else."""
    match = _LENGTH.fullmatch(text.strip().lower())
    if match is None:
        return None
    number = int(match["number"])
    return number * _MINUTES_AN_HOUR if (match["unit"] or "m").startswith("h") else number
