"""Streaming of a growing log to a browser: server-sent events, in constant memory.

    event: log       {"start", "end", "size", "text"}; its id is `end`, from which a browser resumes
    event: gap       {"start", "end"}: bytes left out because the browser fell too far behind
    event: attempt   {"attempt"}: the job runs again; what follows is the log of that attempt
    event: complete  {}: nothing will be added; nobody needs to come back

A page that was requested at the end of the log starts a little before it. The hub authorizes
listeners, as for every other stream. The status of the job is read from the database once a
second. Between those reads only the length of the log is polled.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from portal.core.errors import RateLimited
from portal.web.streams.auth import PageListener
from portal.web.streams.sse import HEARTBEAT_S, PageHub, PageStream
from portal.web.workloads.logs import TAIL_BYTES, LogChunk, piece_at
from portal.workloads.lifecycle import ENDS
from portal.workloads.models import Workload
from portal.workloads.services.logs import LogLocation, log_locations

BRISK_S, CALM_S = 0.2, 0.5
ASK_S = 1.0
# A log that has stopped growing is polled at the fast rate for this long.
CALM_AFTER_S = 5.0
PIECE_BYTES = 256 * 1024
# A browser that is further behind gets the end of the log. Users can scroll back to the rest.
MOST_BEHIND_BYTES = 4 * 1024 * 1024


@dataclass
class LogPosition:
    """Position of one browser in a log. `start` is None until the log exists."""

    workload_id: str
    attempt: int
    rank: int
    start: int | None


@dataclass(frozen=True)
class LogStatus:
    """State of a log in the database: its location if any, the latest attempt, whether it ended."""

    log: LogLocation | None
    newest: int
    has_ended: bool


@dataclass(frozen=True)
class LogPoll:
    """Result of one poll of the log: text, and the range of bytes skipped before it."""

    piece: LogChunk | None
    gap: tuple[int, int] | None


async def follow(
    listener: PageListener, *, workload_id: str, attempt: int, rank: int, start: int | None
) -> AsyncIterator[bytes]:
    """Stream a log from byte `start`, or from shortly before its end."""
    place = LogPosition(workload_id, attempt, rank, start)
    hub = PageHub.current()
    try:
        with hub.joined(PageStream.of(listener)) as stream:
            await hub.started()
            yield b"retry: 1000\n\n"
            async for event in _events(hub, place):
                if stream.is_ended:
                    break
                if event:
                    yield event
            if stream.is_cut:
                yield _format_event("cut", {})
    except RateLimited as error:
        yield f"retry: {1000 * (error.retry_after_s or 10)}\n\n".encode()


async def _events(hub: PageHub, place: LogPosition) -> AsyncIterator[bytes]:
    """Yield events until the log is complete, or none if there is nothing to send."""
    loop = asyncio.get_running_loop()
    moved_s = spoke_s = loop.time()
    status, asked_s = await hub.query(lambda: log_status(place)), loop.time()
    while True:
        if loop.time() - asked_s >= ASK_S:
            status, asked_s = await hub.query(lambda: log_status(place)), loop.time()
        log_place = status.log
        look = await hub.read(lambda log=log_place: poll_log(place, log))  # type: ignore[misc]
        if look.gap:
            yield _format_event("gap", {"start": look.gap[0], "end": look.gap[1]})
        if look.piece is not None and look.piece.text:
            yield _piece_written(look.piece)
            place.start = look.piece.end
            moved_s = spoke_s = loop.time()
            continue
        is_told = look.piece is None or look.piece.is_complete
        if status.newest > place.attempt and is_told:
            place.attempt, place.start = status.newest, 0
            asked_s = 0.0
            yield _format_event("attempt", {"attempt": place.attempt})
            continue
        if status.has_ended and is_told:
            yield _format_event("complete", {})
            return
        if loop.time() - spoke_s >= HEARTBEAT_S:
            spoke_s = loop.time()
            yield b": still here\n\n"
        else:
            yield b""  # lets the caller see that the stream was cut
        calm = loop.time() - moved_s > CALM_AFTER_S
        await asyncio.sleep(CALM_S if calm else BRISK_S)


def log_status(place: LogPosition) -> LogStatus:
    """Return the job's state, and the location of the log."""
    workload = Workload.objects.get(pk=place.workload_id)
    items = log_locations(
        workload=workload, rank=place.rank, attempt=place.attempt, most_ranks=place.rank + 1
    )
    has_ended = workload.status in ENDS or workload.is_kept
    return LogStatus(items[0] if items else None, workload.epoch, has_ended)


def poll_log(place: LogPosition, log: LogLocation | None) -> LogPoll:
    """Read on from a position. Move it near the end if it is too far behind or not set."""
    if log is None:
        return LogPoll(None, None)
    start = place.start
    piece = piece_at(log, start=2**60 if start is None else start, most_bytes=PIECE_BYTES)
    behind = piece.size - piece.start
    near = max(0, piece.size - TAIL_BYTES)
    if start is not None and behind <= MOST_BEHIND_BYTES:
        return LogPoll(piece, None)
    gap = (piece.start, near) if start is not None else None
    piece = piece_at(log, start=near, most_bytes=PIECE_BYTES)
    place.start = piece.start
    return LogPoll(piece, gap)


def _piece_written(piece: LogChunk) -> bytes:
    details = {"start": piece.start, "end": piece.end, "size": piece.size, "text": piece.text}
    return f"id: {piece.end}\n".encode() + _format_event("log", details)


def _format_event(event: str, details: dict[str, Any]) -> bytes:
    return f"event: {event}\ndata: {json.dumps(details)}\n\n".encode()
