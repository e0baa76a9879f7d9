"""Logs on pages: the chosen log, its end as plain text, and reading on from an offset."""

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest

from portal.core.errors import InvalidInput, NotFound
from portal.workloads.models import Workload
from portal.workloads.services.logs import LogLocation, RankLog, log_locations, log_of, read_log
from slipway.schemas.truncation import shorten

TAIL_BYTES = 64 * 1024
MOST_MATCHES = 200
MOST_SHOWN = 300
LONGEST_LINE_BYTES = 1024 * 1024
MOST_SEARCHED_BYTES = 256 * 1024**2
_MOST_DIGITS = 15
# Terminal control sequences: colours, cursor moves, titles.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


@dataclass(frozen=True)
class LogChunk:
    """Text of a log from byte `start` to `end`. `size` is the present size of the log."""

    start: int
    end: int
    size: int
    is_complete: bool
    text: str


def number(request: HttpRequest, name: str, default: int = 0) -> int:
    """Parse an integer query parameter, or raise InvalidInput."""
    text = request.GET.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        raise InvalidInput(f"{name} is not a number.", field=name, next_step="Reload the page.")
    return int(text)


def piece_of(
    workload: Workload, *, attempt: int, rank: int, start: int, most_bytes: int
) -> LogChunk:
    """Read whole characters from byte `start` on, or raise NotFound if there is no such log."""
    items = log_locations(workload=workload, rank=rank, attempt=attempt, most_ranks=rank + 1)
    if not items:
        raise NotFound
    return piece_at(items[0], start=start, most_bytes=most_bytes)


def piece_at(log: LogLocation, *, start: int, most_bytes: int) -> LogChunk:
    """Read whole characters from byte `start` on, without a database query.

    A character that is not completely written yet is left for the next read.
    """
    size = log.size_bytes()
    start = min(start, size)
    data = log.read(start, min(most_bytes, size - start))
    reader = codecs.getincrementaldecoder("utf-8")("replace")
    is_last = log.is_complete and start + len(data) >= size
    text = reader.decode(data, final=is_last)
    kept = len(reader.getstate()[0])
    return LogChunk(start, start + len(data) - kept, size, is_last, text)


def tail_of(workload: Workload, request: HttpRequest) -> dict[str, Any]:
    """Return what the page shows of a log before scripts take over: its last lines, plain."""
    attempt = number(request, "attempt", workload.epoch)
    rank = number(request, "rank")
    context = {"log_attempt": attempt, "log_rank": rank, "log_text": "", "log_cut": False}
    try:
        log: RankLog = log_of(workload=workload, attempt=attempt, rank=rank)
    except NotFound:
        return context
    start = max(0, log.size_bytes - TAIL_BYTES)
    piece = piece_of(workload, attempt=attempt, rank=rank, start=start, most_bytes=TAIL_BYTES)
    text = piece.text.partition("\n")[2] if start else piece.text
    return context | {"log_text": plain(text), "log_cut": start > 0}


def plain(text: str) -> str:
    """Return a log as text alone: no colours, and of a line drawn over, the last drawing."""
    shown = _ESCAPES.sub("", text.replace("\r\n", "\n"))
    lines = (line.rpartition("\r")[2] if "\r" in line else line for line in shown.split("\n"))
    return "\n".join(_UNSEEN.sub("", line) for line in lines)


@dataclass(frozen=True)
class Match:
    """Line of a log that matches a search. `start` is its byte offset."""

    start: int
    text: str


@dataclass(frozen=True)
class Matches:
    """Matching lines. The log was searched from its beginning up to `searched_bytes`."""

    lines: list[Match]
    searched_bytes: int
    size_bytes: int

    @property
    def is_complete(self) -> bool:
        """True if the log was searched to its end."""
        return self.searched_bytes >= self.size_bytes


def matches_in(workload: Workload, *, attempt: int, rank: int, words: str) -> Matches:
    """Return the first lines of a log that contain `words`, ignoring case, in constant memory.

    Raises NotFound for a log there is not.
    """
    log = log_of(workload=workload, attempt=attempt, rank=rank)
    length = min(log.size_bytes, MOST_SEARCHED_BYTES)
    pieces = read_log(workload=workload, attempt=attempt, rank=rank, start=0, length=length)
    needle = words.lower().encode()
    matches: list[Match] = []
    for start, line in _lines(pieces):
        if needle in line.lower():
            text = plain(line.decode("utf-8", "replace"))
            matches.append(Match(start, shorten(text, MOST_SHOWN)))
            if len(matches) >= MOST_MATCHES:
                return Matches(matches, min(start + len(line), length), log.size_bytes)
    return Matches(matches, length, log.size_bytes)


def _lines(pieces: Iterator[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield each line with its byte offset. Very long lines are cut into parts."""
    at, rest = 0, b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield at, line
            at += len(line) + 1
        if len(rest) > LONGEST_LINE_BYTES:
            yield at, rest
            at, rest = at + len(rest), b""
    if rest:
        yield at, rest
