"""Timestamps in a query or a body, such as `since`: RFC 3339 with an offset."""

import re
from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, AwareDatetime, BeforeValidator

_FIRST = datetime.min.replace(tzinfo=UTC)
_LAST = datetime.max.replace(tzinfo=UTC)
_RFC3339 = re.compile(r"\A\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d")


def _reject_bare_number(text: object) -> object:
    """Refuse bare numbers. Pydantic would read `2026` as seconds after 1970."""
    if isinstance(text, int | float) or (isinstance(text, str) and not _RFC3339.match(text)):
        raise ValueError("must be a date and time such as 2026-01-31T12:00:00Z")
    return text


def _in_utc(timestamp: datetime) -> datetime:
    """Convert to UTC. PostgreSQL refuses offsets of 16 hours and more, which Pydantic accepts."""
    try:
        return timestamp.astimezone(UTC)
    except OverflowError:
        return _FIRST if timestamp.year == 1 else _LAST


Moment = Annotated[AwareDatetime, BeforeValidator(_reject_bare_number), AfterValidator(_in_utc)]
