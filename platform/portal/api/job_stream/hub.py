"""One look a moment for all who follow: a task an event loop, two threads, any number of followers.

Every `LOOK_S` the hub asks in three queries how all followed jobs stand, and wakes the followers,
who read what is new for them in its threads. Every `CHECK_S` it asks who may follow on. A follower
that may not is cut off. When the database cannot be asked, streams end without their last word and
the clients come back by themselves.
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
    """How many streams each person has open in this process."""

    def __init__(self) -> None:
        self._taken: Counter[str] = Counter()
        self._lock = Lock()

    def check(self, user_id: str) -> None:
        """Raise RateLimited when the person has too many open already."""
        with self._lock:
            if self._taken[user_id] < STREAMS_A_PERSON:
                return
        raise RateLimited(
            f"You already have {STREAMS_A_PERSON} job streams open.",
            next_step="Close a stream, then try again.",
            retry_after_s=10,
        )

    @contextmanager
    def taken(self, user_id: str) -> Iterator[None]:
        """Count one more for the duration of a block."""
        with self._lock:
            self._taken[user_id] += 1
        try:
            yield
        finally:
            with self._lock:
                self._taken[user_id] -= 1
                self._taken += Counter()  # forgets those at zero


seats = Seats()


@dataclass(eq=False)
class Follower:
    """One open stream; `mark` differs when how the job stands has changed."""

    right: StreamAuthorization
    job_id: str
    mark: Mark | None = None
    rung: asyncio.Event = field(default_factory=asyncio.Event)
    is_cut: bool = False

    def ring(self) -> None:
        """Wake it."""
        self.rung.set()

    async def next_look(self) -> None:
        """Wait until the hub has looked again."""
        await self.rung.wait()
        self.rung.clear()

    def may_go_on(self) -> bool:
        """Whether it was not cut off."""
        return not self.is_cut

    def cut(self) -> None:
        """End the stream."""
        self.is_cut = True
        self.rung.set()


class JobStreamHub:
    """All followers of one event loop, and the task that looks for them."""

    def __init__(self) -> None:
        self._followers: set[Follower] = set()
        self._task: asyncio.Task[None] | None = None
        # One connection to the database however many follow; and logs do not wait for queries.
        self._questions = OwnThread("follow-ask")
        self._files = OwnThread("follow-read")
        self._asked: dict[Hashable, asyncio.Future[Any]] = {}

    @contextmanager
    def joined(self, right: StreamAuthorization, job_id: str) -> Iterator[Follower]:
        """Follow for the duration of a block; the first follower starts the looking."""
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
        """Run a question to the database in the hub's thread for those."""
        return await self._questions.run(question)

    async def ask_once(self, key: Hashable, question: Callable[[], Result]) -> Result:
        """Run a question once for all followers who ask the same at the same moment."""
        task = self._asked.get(key)
        if task is None:
            task = self._asked[key] = asyncio.ensure_future(self.ask(question))
            task.add_done_callback(lambda _: self._asked.pop(key, None))
        result: Result = await asyncio.shield(task)  # who goes away takes it from nobody
        return result

    async def read(self, reading: Callable[[], Result]) -> Result:
        """Read files in the hub's thread for those."""
        return await self._files.run(reading)

    async def _run(self) -> None:
        try:
            await self._look_for_ever()
        except Exception:
            log.exception("job_streams_failed")
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
