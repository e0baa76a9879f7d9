"""The stream of one client, in order: state, logs, resource usage, end."""

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

from portal.accounts.models import User
from portal.api.job_stream.authorization import StreamAuthorization
from portal.api.job_stream.cursor import Bookmark
from portal.api.job_stream.hub import JobStream, JobStreamHub
from portal.api.job_stream.log_reader import LogReader, Mark, event, new_samples, progress_for
from portal.core.errors import RateLimited
from portal.training.models import Job
from slipway.schemas.training import JobProgress

HEARTBEAT_S = 15.0
# Cost and the reason of a wait change without a change of the job.
REFRESH_S = 2.0
SAMPLES_S = 1.0
_HELLO = b"retry: 1000\n\n"
_HEARTBEAT = b": still here\n\n"


@dataclass(frozen=True)
class StreamRequest:
    """The requested stream, and the id of the last event the client received."""

    job: Job
    viewer: User
    right: StreamAuthorization
    rank: int | None
    attempt: int | None
    logs: bool
    last_id: str


async def news_of(wish: StreamRequest) -> AsyncIterator[bytes]:
    """Stream server-sent events until the job has ended and all was sent, or access is lost."""
    hub = JobStreamHub.current()
    try:
        with hub.joined(JobStream(wish.right, job_id=wish.job.pk)) as stream:
            yield _HELLO
            async for data in _JobEvents(wish, hub, stream).events():
                yield data
    except RateLimited as error:  # another stream opened since the limit was checked
        yield f"retry: {1000 * (error.retry_after_s or 10)}\n\n".encode()


class _JobEvents:
    """The events of one stream."""

    def __init__(self, wish: StreamRequest, hub: JobStreamHub, stream: JobStream) -> None:
        self._wish, self._hub, self._stream = wish, hub, stream
        self._bookmark = Bookmark.read(wish.last_id)
        self._log = LogReader(wish.job, self._bookmark, rank=wish.rank, attempt=wish.attempt)
        self._progress: JobProgress | None = None
        self._mark: Mark | None = None
        self._looked_at: Mark | None = None
        self._progress_at_s = self._samples_at_s = float("-inf")

    @property
    def _is_final(self) -> bool:
        return self._progress is not None and self._progress.workload.has_outcome

    async def events(self) -> AsyncIterator[bytes]:
        """Yield new events after each poll of the hub."""
        spoke_s = time.monotonic()
        await self._stream.next_poll()
        while self._stream.is_open():
            items = [*await self._state(), *await self._samples(), *await self._logs()]
            for item in items:
                yield item
                if not self._stream.is_open():
                    return
            if items:
                spoke_s = time.monotonic()
                continue  # there may be more already
            if self._is_final and self._log.is_whole:
                for item in await self._state(once_more=True):  # the last lines count too
                    yield item
                yield event("end", "{}", self._bookmark)
                return
            if time.monotonic() - spoke_s >= HEARTBEAT_S:
                spoke_s = time.monotonic()
                yield _HEARTBEAT
            await self._stream.next_poll()

    async def _state(self, *, once_more: bool = False) -> list[bytes]:
        now = time.monotonic()
        is_old = now - self._progress_at_s >= REFRESH_S and not self._is_final
        mark = self._stream.mark
        if mark == self._mark and not is_old and not once_more:
            return []
        job, viewer = self._wish.job, self._wish.viewer
        key = ("progress", job.pk, viewer.pk)
        progress = await self._hub.query_once(key, lambda: progress_for(job, viewer))
        self._mark, self._progress_at_s = mark, now
        if progress == self._progress:
            return []
        self._progress = progress
        return [event("state", progress.model_dump_json(), self._bookmark)]

    async def _samples(self) -> list[bytes]:
        now = time.monotonic()
        if now - self._samples_at_s < SAMPLES_S and not self._is_final:
            return []
        self._samples_at_s = now
        job = self._wish.job
        return await self._hub.query(lambda: new_samples(job, self._bookmark))

    async def _logs(self) -> list[bytes]:
        if not self._wish.logs:
            return []
        if self._looked_at != self._mark or self._is_final:
            self._looked_at = self._mark
            await self._hub.query(self._log.look)
        return await self._hub.read(self._log.read)
