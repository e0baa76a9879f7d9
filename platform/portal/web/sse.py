"""Fan-out of changes to open pages: one poller per process serves any number of streams.

Every `POLL_S` the poller reads the rows of `LiveEvent` that are new and hands them to the streams
of their topics. Every `CHECK_S`, and at once after a change of rights, it asks the database, in a
handful of queries for all streams together, who may still listen: a stream whose session has ended,
whose person was suspended or removed, or whose project was archived gets `live:cut` and ends. When
the database cannot be asked, streams end without a word and the browsers come back by themselves.

PostgreSQL hands out numbers before rows commit, so a lower number may appear after a higher one.
Numbers therefore settle for `SETTLE_S`: until then every poll reads them again and skips what was
delivered, and the id a browser resumes from is the settled one. An event received twice only
makes a page reload twice.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar
from weakref import WeakKeyDictionary

import structlog
from django.db.models import Min

from portal.core.errors import RateLimited
from portal.core.streams import OwnThread
from portal.web.models import LiveEvent
from portal.web.sse_auth import PageListener, still_allowed

log = structlog.get_logger(__name__)
POLL_S = 0.5
CHECK_S = 2.0
HEARTBEAT_S = 15.0
SETTLE_S = 10.0
MOST_ROWS = 1_000
MOST_WAITING = 100
STREAMS_A_PERSON = 12
RETRY_MS = 1_000
CUT, STALE = "live:cut", "live:stale"
# Changes after which a person may have lost access: permissions are checked immediately.
ABOUT_RIGHTS = frozenset({"account", "members", "project", "projects", "sessions"})
Result = TypeVar("Result")


def newest_id() -> int:
    """The number of the newest event: where a page that is drawn now starts to listen."""
    newest = LiveEvent.objects.order_by("-pk").values_list("pk", flat=True).first()
    return newest or 0


@dataclass(eq=False)
class Stream:
    """One open page. `waiting` has its pending events, each once."""

    listener: PageListener
    waiting: dict[str, None] = field(default_factory=dict)
    rung: asyncio.Event = field(default_factory=asyncio.Event)
    ended: bool = False

    def ring(self, what: str) -> None:
        """Notify the page. Pending notifications of the same kind are merged."""
        if len(self.waiting) < MOST_WAITING:
            self.waiting[what] = None
        else:
            self.waiting = {STALE: None}
        self.rung.set()

    def end(self, *, cut: bool) -> None:
        """Close the stream. `cut` notifies the page that it may no longer listen."""
        self.waiting = {CUT: None} if cut else {}
        self.ended = True
        self.rung.set()


class SseHub:
    """All streams of one event loop and the task that feeds them. It is idle without listeners."""

    def __init__(self) -> None:
        self.streams: set[Stream] = set()
        self.settled = 0
        self._seen: dict[int, float] = {}
        self._task: asyncio.Task[None] | None = None
        self._standing = asyncio.Event()
        # Separate threads, so that logs do not wait for queries.
        self._questions = OwnThread("live-ask")
        self._files = OwnThread("live-read")

    def room_for(self, user_id: str) -> bool:
        """Return whether the person may open one more stream in this process."""
        number = sum(1 for stream in self.streams if stream.listener.user_id == user_id)
        return number < STREAMS_A_PERSON

    @contextmanager
    def joined(self, listener: PageListener) -> Iterator[Stream]:
        """Receive notifications within the block, or raise RateLimited for one stream too many."""
        if not self.room_for(listener.user_id):
            raise RateLimited("Too many pages of yours are open.", retry_after_s=10)
        stream = Stream(listener)
        self.streams.add(stream)
        try:
            yield stream
        finally:
            self.streams.discard(stream)

    async def ready(self) -> None:
        """Make sure the poller runs and knows its position."""
        if self._task is None or self._task.done():
            self._standing = asyncio.Event()
            self._task = asyncio.create_task(self._run(), name="sse")
        await self._standing.wait()

    async def ask(self, question: Callable[[], Result]) -> Result:
        """Run a question to the database in the thread of the hub."""
        return await self._questions.run(question)

    async def read(self, reading: Callable[[], Result]) -> Result:
        """Read files in the thread the hub has for that."""
        return await self._files.run(reading)

    async def _run(self) -> None:
        try:
            self._seen = {}
            self.settled = await self.ask(newest_id)
            self._standing.set()
            await self._feed()
        except Exception:
            # Browsers reconnect by themselves, and the next stream starts the poller again.
            log.exception("live_updates_rest")
            for stream in self.streams:
                stream.end(cut=False)
        finally:
            self._standing.set()

    async def _feed(self) -> None:
        checked_s = time.monotonic()
        while self.streams:
            await asyncio.sleep(POLL_S)
            news = self._deliver(await self.ask(self._new_rows))
            if news & ABOUT_RIGHTS or time.monotonic() - checked_s >= CHECK_S - POLL_S:
                checked_s = time.monotonic()
                await self._cut_the_uninvited()

    def _new_rows(self) -> list[tuple[int, str, str]]:
        rows = LiveEvent.objects.filter(pk__gt=self.settled).order_by("pk")
        return list(rows.values_list("pk", "topic", "what")[:MOST_ROWS])

    def _deliver(self, rows: list[tuple[int, str, str]]) -> set[str]:
        """Notify the pages that show changed objects, and return the kinds of change."""
        now_s = time.monotonic()
        news = set()
        for number, topic, what in rows:
            if number in self._seen:
                continue
            self._seen[number] = now_s
            news.add(what)
            for stream in self.streams:
                if topic in stream.listener.topics:
                    stream.ring(f"live:{what}")
        self._settle(now_s, crowded=len(rows) == MOST_ROWS)
        return news

    def _settle(self, now_s: float, *, crowded: bool) -> None:
        """Forget numbers below which no row can appear any more, sooner when there are many."""
        old = [number for number, at in self._seen.items() if now_s - at > SETTLE_S]
        if crowded:
            old = sorted(self._seen)[: MOST_ROWS // 2]
        if old:
            self.settled = max(self.settled, *old)
            self._seen = {n: at for n, at in self._seen.items() if n > self.settled}

    async def _cut_the_uninvited(self) -> None:
        streams = list(self.streams)
        listeners = {stream.listener for stream in streams}
        allowed = await self.ask(lambda: still_allowed(listeners))
        for stream in streams:
            if stream.listener not in allowed:
                stream.end(cut=True)


_hubs: WeakKeyDictionary[asyncio.AbstractEventLoop, SseHub] = WeakKeyDictionary()


def hub() -> SseHub:
    """The hub of the running event loop."""
    return _hubs.setdefault(asyncio.get_running_loop(), SseHub())


async def rings_for(listener: PageListener, since: int) -> AsyncIterator[bytes]:
    """Stream server-sent events to one page: first what it missed since event `since`."""
    house = hub()
    try:
        with house.joined(listener) as stream:
            await house.ready()
            yield f"retry: {RETRY_MS}\nid: {house.settled}\n\n".encode()
            for what in await house.ask(lambda: _missed(listener, since)):
                stream.ring(what)
            while not stream.ended:
                yield await _next(stream, house)
            yield _written(stream, house)
    except RateLimited as error:
        yield f"retry: {1000 * (error.retry_after_s or 10)}\n\n".encode()


async def _next(stream: Stream, house: SseHub) -> bytes:
    try:
        async with asyncio.timeout(HEARTBEAT_S):
            await stream.rung.wait()
    except TimeoutError:
        return b": still here\n\n"
    return b"" if stream.ended else _written(stream, house)


def _written(stream: Stream, house: SseHub) -> bytes:
    rings, stream.waiting = stream.waiting, {}
    stream.rung.clear()
    return "".join(f"event: {what}\nid: {house.settled}\ndata: \n\n" for what in rings).encode()


def _missed(listener: PageListener, since: int) -> list[str]:
    """Return the events after event `since`, or STALE if it precedes the stored events."""
    oldest = LiveEvent.objects.aggregate(oldest=Min("pk"))["oldest"]
    if since and oldest is not None and since < oldest - 1:
        return [STALE]
    missed = LiveEvent.objects.filter(pk__gt=since, topic__in=listener.topics)
    return [f"live:{what}" for what in missed.values_list("what", flat=True).distinct()]
