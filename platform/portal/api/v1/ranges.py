"""Which part of a file a request asks for (RFC 9110, section 14)."""

import re
from dataclasses import dataclass

_ONE_RANGE = re.compile(r"\Abytes=\s*(\d{0,18})-(\d{0,18})\s*\Z")


@dataclass(frozen=True)
class Part:
    """`length` bytes from `start`."""

    start: int
    length: int


class Unsatisfiable(Exception):
    """The range begins behind the end of the file."""


def part_of(header: str | None, size_bytes: int) -> Part | None:
    """Return the part a Range header asks for; None means the whole file.

    Several ranges, other units and what cannot be read are ignored, as the standard allows. Raises
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
