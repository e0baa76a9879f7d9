"""Fan-out of job events: one poller per event loop serves every open stream.

Every `LOOK_S` seconds, the hub queries the state of all streamed jobs with three queries, and wakes
the streams, which read their news in its threads. Every `CHECK_S` seconds it checks authorization,
and closes streams that lost it. If the database is unavailable, streams end without their last
event, and the clients reconnect.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import structlog

from portal.api.job_stream.authorization import StreamAuthorization, still_allowed
from portal.api.job_stream.log_reader import Mark, marks_of
from portal.core.errors import RateLimited
from portal.core.streams import OwnThread

log = structlog.get_logger(__name__)
LOOK_S = 0.2
CHECK_S = 2.0
STREAMS_A_PERSON = 50
Result = TypeVar("Result")


class Seats:
    """Number of open streams per person in this process."""

    def __init__(self) -> None:
        self._taken: Counter[str] = Counter()
        self._lock = Lock()

    def check(self, user_id: str) -> None:
        """Raise RateLimited if the person has too many open streams."""
        with self._lock:
            if self._taken[user_id] < STREAMS_A_PERSON:
                return
        raise RateLimited(
            f"You follow {STREAMS_A_PERSON} jobs at once already.",
            next_step="Close some of the streams, then follow this one.",
            retry_after_s=10,
        )

    @contextmanager
    def taken(self, user_id: str) -> Iterator[None]:
        """Count one more stream for the duration of a block."""
        with self._lock:
            self._taken[user_id] += 1
        try:
            yield
        finally:
            with self._lock:
                self._taken[user_id] -= 1
                self._taken += Counter()  # removes entries at zero


seats = Seats()


@dataclass(eq=False)
class Follower:
    """One open stream. `mark` changes with the state of the job."""

    right: StreamAuthorization
    job_id: str
    mark: Mark | None = None
    rung: asyncio.Event = field(default_factory=asyncio.Event)
    is_cut: bool = False

    def ring(self) -> None:
        """Wake the stream."""
        self.rung.set()

    async def next_look(self) -> None:
        """Wait for the next poll of the hub."""
        await self.rung.wait()
        self.rung.clear()

    def may_go_on(self) -> bool:
        """Return whether the stream was not cut off."""
        return not self.is_cut

    def cut(self) -> None:
        """End the stream."""
        self.is_cut = True
        self.rung.set()


class JobStreamHub:
    """All streams of one event loop, and the task that polls for them."""

    def __init__(self) -> None:
        self._followers: set[Follower] = set()
        self._task: asyncio.Task[None] | None = None
        # One database connection for all streams. Logs do not wait for queries.
        self._questions = OwnThread("follow-ask")
        self._files = OwnThread("follow-read")
        self._asked: dict[Hashable, asyncio.Future[Any]] = {}

    @contextmanager
    def joined(self, right: StreamAuthorization, job_id: str) -> Iterator[Follower]:
        """Stream for the duration of a block. The first stream starts the polling."""
        follower = Follower(right, job_id)
        self._followers.add(follower)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="follow")
        try:
            with seats.taken(right.user_id):
                yield follower
        finally:
            self._followers.discard(follower)

    async def ask(self, question: Callable[[], Result]) -> Result:
        """Run a database query in the hub's thread for queries."""
        return await self._questions.run(question)

    async def ask_once(self, key: Hashable, question: Callable[[], Result]) -> Result:
        """Run a query once for all streams that request it at the same time."""
        task = self._asked.get(key)
        if task is None:
            task = self._asked[key] = asyncio.ensure_future(self.ask(question))
            task.add_done_callback(lambda _: self._asked.pop(key, None))
        result: Result = await asyncio.shield(
            task
        )  # a client that leaves does not cancel it for others
        return result

    async def read(self, reading: Callable[[], Result]) -> Result:
        """Read files in the hub's thread for files."""
        return await self._files.run(reading)

    async def _run(self) -> None:
        try:
            await self._look_for_ever()
        except Exception:
            log.exception("following_rests")
            for follower in self._followers:
                follower.cut()

    async def _look_for_ever(self) -> None:
        checked_s = time.monotonic()
        while self._followers:
            job_ids = {follower.job_id for follower in self._followers}
            marks = await self.ask(lambda ids=job_ids: marks_of(ids))  # type: ignore[misc]
            for follower in self._followers:
                follower.mark = marks.get(follower.job_id, follower.mark)
                follower.ring()
            if time.monotonic() - checked_s >= CHECK_S:
                checked_s = time.monotonic()
                await self._cut_the_uninvited()
            await asyncio.sleep(LOOK_S)

    async def _cut_the_uninvited(self) -> None:
        followers = list(self._followers)
        rights = {follower.right for follower in followers}
        allowed = await self.ask(lambda: still_allowed(rights))
        for follower in followers:
            if follower.right not in allowed:
                follower.cut()


_hubs: WeakKeyDictionary[asyncio.AbstractEventLoop, JobStreamHub] = WeakKeyDictionary()


def hub() -> JobStreamHub:
    """Return the hub of the running event loop."""
    return _hubs.setdefault(asyncio.get_running_loop(), JobStreamHub())
