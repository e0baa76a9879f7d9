"""A log on its way to a browser while it grows: server-sent events, in constant memory.

    event: log       {"start", "end", "size", "text"}; its id is `end`, from which a browser resumes
    event: gap       {"start", "end"}: bytes left out because the browser fell too far behind
    event: attempt   {"attempt"}: the job runs again; what follows is the log of that attempt
    event: complete  {}: nothing will be added; nobody needs to come back

A page that was asked for the end starts a little before it. Who may listen is decided as for every
other stream, by the hub.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from asgiref.sync import sync_to_async
from django.db import close_old_connections

from portal.core.errors import NotFound, RateLimited
from portal.web.listeners import Listener
from portal.web.live import CUT, HEARTBEAT_S, Hub, hub
from portal.web.logs import TAIL_BYTES, Piece, piece_of
from portal.workloads.lifecycle import ENDS
from portal.workloads.models import Workload

BRISK_S, CALM_S = 0.2, 0.5
# How long a log that has stopped growing is still looked at briskly.
CALM_AFTER_S = 5.0
PIECE_BYTES = 256 * 1024
# A browser that is further behind is shown the end; the rest can be scrolled back to.
MOST_BEHIND_BYTES = 4 * 1024 * 1024


@dataclass
class Place:
    """Where one browser stands in which log; `start` is None until the log is there."""

    workload_id: str
    attempt: int
    rank: int
    start: int | None


@dataclass(frozen=True)
class Look:
    """What one look at the log has found. `newest` is the latest attempt of the job."""

    piece: Piece | None
    gap: tuple[int, int] | None
    newest: int
    is_over: bool


async def follow(
    listener: Listener, *, workload_id: str, attempt: int, rank: int, start: int | None
) -> AsyncIterator[bytes]:
    """Stream a log from byte `start`, or from shortly before its end."""
    await sync_to_async(close_old_connections)()
    place = Place(workload_id, attempt, rank, start)
    house = hub()
    try:
        with house.joined(listener) as stream:
            await house.ready()
            yield b"retry: 1000\n\n"
            async for event in _events(house, place):
                if stream.ended:
                    break
                if event:
                    yield event
            if CUT in stream.waiting:
                yield _written("cut", {})
    except RateLimited as error:
        yield f"retry: {1000 * (error.retry_after_s or 10)}\n\n".encode()


async def _events(house: Hub, place: Place) -> AsyncIterator[bytes]:
    """Yield events until the log is complete; nothing at all when there is nothing to say."""
    loop = asyncio.get_running_loop()
    moved_s = spoke_s = loop.time()
    while True:
        look = await house.ask(lambda: look_at(place))
        if look.gap:
            yield _written("gap", {"start": look.gap[0], "end": look.gap[1]})
        if look.piece is not None and look.piece.text:
            yield _piece_written(look.piece)
            place.start = look.piece.end
            moved_s = spoke_s = loop.time()
            continue
        if look.newest > place.attempt and (look.piece is None or look.piece.is_complete):
            place.attempt, place.start = look.newest, 0
            yield _written("attempt", {"attempt": place.attempt})
            continue
        if look.is_over and (look.piece is None or look.piece.is_complete):
            yield _written("complete", {})
            return
        if loop.time() - spoke_s >= HEARTBEAT_S:
            spoke_s = loop.time()
            yield b": still here\n\n"
        else:
            yield b""  # lets the caller see that the stream was cut
        calm = loop.time() - moved_s > CALM_AFTER_S
        await asyncio.sleep(CALM_S if calm else BRISK_S)


def look_at(place: Place) -> Look:
    """Read on from a place; moves it to near the end when it is too far behind, or nowhere yet."""
    workload = Workload.objects.get(pk=place.workload_id)
    is_over = workload.status in ENDS
    start = place.start
    try:
        piece = piece_of(
            workload,
            attempt=place.attempt,
            rank=place.rank,
            start=2**60 if start is None else start,
            most_bytes=PIECE_BYTES,
        )
    except NotFound:
        return Look(None, None, workload.epoch, is_over)
    behind = piece.size - piece.start
    near = max(0, piece.size - TAIL_BYTES)
    if start is not None and behind <= MOST_BEHIND_BYTES:
        return Look(piece, None, workload.epoch, is_over)
    gap = (piece.start, near) if start is not None else None
    piece = piece_of(
        workload, attempt=place.attempt, rank=place.rank, start=near, most_bytes=PIECE_BYTES
    )
    place.start = piece.start
    return Look(piece, gap, workload.epoch, is_over)


def _piece_written(piece: Piece) -> bytes:
    facts = {"start": piece.start, "end": piece.end, "size": piece.size, "text": piece.text}
    return f"id: {piece.end}\n".encode() + _written("log", facts)


def _written(event: str, facts: dict[str, Any]) -> bytes:
    return f"event: {event}\ndata: {json.dumps(facts)}\n\n".encode()
