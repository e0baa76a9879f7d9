"""Following a job live: through broken connections and restarts, every byte of its log once."""

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from pydantic import ValidationError

from slipway.connection import Connection, Download
from slipway.errors import (
    ConnectionFailed,
    NotFound,
    RateLimited,
    ServerError,
    SlipwayError,
    Unavailable,
    UnexpectedAnswer,
)
from slipway.schemas.training import LOG_READ_BYTES, JobProgress, LogPiece, SampleOut
from slipway.server_events import MEDIA_TYPE, ServerEvent, read_events

News = LogPiece | JobProgress | SampleOut
Trouble = Callable[[SlipwayError, float], None]
# The server sends something at least every 15 s.
SILENCE_S = 45.0
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.2, 5.0
_FRUITLESS_AFTER_END = 3
_PASSING = (ConnectionFailed, Unavailable, RateLimited, ServerError)
_ENDS = "end"


@dataclass
class _Follower:
    """State of a log stream between two connections."""

    connection: Connection
    job: tuple[str, ...]
    is_from_start: bool
    last_id: str
    places: dict[tuple[int, int], int] = field(default_factory=dict)
    progress: JobProgress | None = None
    brought: int = 0

    def process(self, event: ServerEvent) -> Iterator[News]:
        """Yield the new part of an event, without repeats or gaps."""
        try:
            if event.name == "log":
                yield from self._process_log(LogPiece.model_validate_json(event.data))
            elif event.name == "state":
                progress = JobProgress.model_validate_json(event.data)
                if progress != self.progress:
                    self.progress = progress
                    self.brought += 1
                    yield progress
            elif event.name == "sample":
                yield SampleOut.model_validate_json(event.data)
        except ValidationError:
            raise _misfit(event.name) from None
        # Updated last, so that an event that was not fully processed is requested again.
        self.last_id = event.id

    def _process_log(self, piece: LogPiece) -> Iterator[LogPiece]:
        key = (piece.attempt, piece.rank)
        try:
            data = piece.data
        except ValueError:
            raise _misfit("log") from None
        place = self.places.get(key, 0 if self.is_from_start else piece.offset)
        if piece.offset > place:
            yield from self._fetch(key, place, piece.offset)
            place = max(self.places.get(key, 0), piece.offset)
        end = piece.offset + len(data)
        if end <= place:
            return
        self.places[key] = end
        self.brought += 1
        if place > piece.offset:
            yield _piece(key, place, data[place - piece.offset :])
        else:
            yield piece

    def _fetch(self, key: tuple[int, int], start: int, end: int) -> Iterator[LogPiece]:
        """Fetch the bytes that the stream left out. Those that are gone for good are skipped."""
        attempt, rank = key
        while start < end:
            limit = min(LOG_READ_BYTES, end - start)
            query = {"attempt": attempt, "rank": rank, "offset": start, "limit": limit}
            before = start
            try:
                with self.connection.stream(*self.job, "logs", query=query) as body:
                    start = offset_of(body, start)
                    for data in body:
                        data = data[: max(0, end - start)]
                        if data:
                            self.places[key] = start + len(data)
                            self.brought += 1
                            yield _piece(key, start, data)
                            start += len(data)
            except NotFound:
                return
            if start == before:
                return


def follow(
    connection: Connection,
    job: tuple[str, ...],
    *,
    rank: int | None,
    attempt: int | None,
    logs: bool,
    after: str | None,
    patience_s: float,
    trouble: Trouble | None,
) -> Iterator[News]:
    """Yield the events of the job at the address `job` until it has ended and all were received.

    A broken connection is reopened. After `patience_s` seconds without success the error is raised.
    `trouble` is called with each failure and the seconds until the next attempt.
    """
    follower = _Follower(connection, job, after is None, after or "")
    query = {"rank": rank, "attempt": attempt, "logs": None if logs else "false"}
    failures, fruitless = 0, 0
    well_at = time.monotonic()
    while True:
        before, opened_at = follower.brought, time.monotonic()
        error: SlipwayError | None = None
        try:
            headers = {"Accept": MEDIA_TYPE}
            if follower.last_id:
                headers["Last-Event-ID"] = follower.last_id
            stream = connection.stream(
                *job, "follow", query=query, headers=headers, timeout_s=SILENCE_S
            )
            with stream as body:
                _check(body)
                for event in read_events(body, last_id=follower.last_id):
                    if event.name == _ENDS:
                        return
                    yield from follower.process(event)
        except _PASSING as caught:
            error = caught
        now = time.monotonic()
        if follower.brought > before or now - opened_at > _LONGEST_WAIT_S:
            failures, fruitless, well_at = 0, 0, now
        else:
            failures += 1
        if error is None:
            fruitless += follower.brought == before
            if _is_final(follower) and fruitless >= _FRUITLESS_AFTER_END:
                return  # complete responses without content: a proxy drops the last event
            error = ConnectionFailed(
                "The server closed the connection.", next_step="Nothing; it is made again."
            )
        wait_s = _wait_s(failures, error)
        if now - well_at + wait_s > patience_s:
            raise error
        if trouble is not None:
            trouble(error, wait_s)
        time.sleep(wait_s)


def offset_of(body: Download, requested: int) -> int:
    """Return the offset in the log of the first byte of a response of `logs`."""
    return max(requested, body.number("X-Log-Offset", requested) or 0)


def _is_final(follower: _Follower) -> bool:
    return follower.progress is not None and follower.progress.workload.has_outcome


def _wait_s(failures: int, error: SlipwayError) -> float:
    wait = min(_FIRST_WAIT_S * 2.0 ** max(0, failures - 1), _LONGEST_WAIT_S)
    jittered: float = wait * (0.5 + random.random())  # noqa: S311
    return max(jittered, float(error.retry_after_s or 0))


def _piece(key: tuple[int, int], offset: int, data: bytes) -> LogPiece:
    return LogPiece.of(attempt=key[0], rank=key[1], offset=offset, data=data)


def _check(body: Download) -> None:
    if not body.header("content-type").startswith(MEDIA_TYPE):
        raise UnexpectedAnswer(
            "The server does not answer with a stream of events.",
            next_step="Check that the server and this SDK are of the same version, and that no "
            "proxy before it answers in its place.",
        )


def _misfit(name: str) -> UnexpectedAnswer:
    return UnexpectedAnswer(
        f"An event `{name}` of the server does not have the expected shape.",
        next_step="Check that the server and this SDK are of the same version.",
    )
