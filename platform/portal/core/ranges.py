"""Range requests (RFC 9110, section 14)."""

import re
from dataclasses import dataclass

_ONE_RANGE = re.compile(r"\Abytes=\s*(\d{0,18})-(\d{0,18})\s*\Z")


@dataclass(frozen=True)
class Part:
    """`length` bytes from `start`."""

    start: int
    length: int


class Unsatisfiable(Exception):
    """The range begins after the end of the file."""


def part_of(header: str | None, size_bytes: int) -> Part | None:
    """Return the requested part of a Range header, None for the whole file.

    Multiple ranges, other units and malformed ones are ignored, as the standard permits. Raises
    Unsatisfiable.
    """
    match = _ONE_RANGE.match(header) if header else None
    if match is None or (not match[1] and not match[2]):
        return None
    if not match[1]:
        length = min(int(match[2]), size_bytes)
        if length == 0:
            raise Unsatisfiable
        return Part(size_bytes - length, length)
    start = int(match[1])
    last = min(int(match[2]), size_bytes - 1) if match[2] else size_bytes - 1
    if match[2] and int(match[2]) < start:
        return None
    if start >= size_bytes:
        raise Unsatisfiable
    return Part(start, last - start + 1)
