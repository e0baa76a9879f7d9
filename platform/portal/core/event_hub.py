"""Fan-out to open event streams: one poller per event loop serves any number of them.

A hub polls the database for all its streams together, and asks every `check_s` in a few queries
who may still listen. A stream without the right ends with `is_cut`. When the database cannot be
asked, streams end without a last event and clients reconnect by themselves.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import ClassVar, Generic, Protocol, Self, TypeVar
from weakref import WeakKeyDictionary

import structlog

from portal.core.errors import RateLimited
from portal.core.streams import StreamThread

log = structlog.get_logger(__name__)
Result = TypeVar("Result")


class Listener(Protocol):
    """The person behind a stream and the right to it. Hashable: equal rights are checked once."""

    @property
    def user_id(self) -> str:
        """Id of the person."""


@dataclass(eq=False)
class OpenStream:
    """One open stream. `changed` is set when there may be something to send."""

    listener: Listener
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    is_ended: bool = False
    is_cut: bool = False

    def is_open(self) -> bool:
        """Return whether the stream goes on."""
        return not self.is_ended

    def notify(self) -> None:
        """Wake the stream."""
        self.changed.set()

    def end(self, *, cut: bool) -> None:
        """End the stream. `cut` means that its person may no longer listen."""
        self.is_ended, self.is_cut = True, cut
        self.changed.set()


class StreamLimit:
    """Number of streams that each person may have open in this process."""

    def __init__(self, most: int, message: str) -> None:
        self._most = most
        self._message = message
        self._open: Counter[str] = Counter()
        self._lock = Lock()

    def check(self, user_id: str) -> None:
        """Raise RateLimited if the person has as many open as allowed."""
        with self._lock:
            if self._open[user_id] < self._most:
                return
        raise RateLimited(
            self._message,
            next_step="Close some of them, then open this one.",
            retry_after_s=10,
        )

    @contextmanager
    def counted(self, user_id: str) -> Iterator[None]:
        """Count one more stream for the duration of a block."""
        with self._lock:
            self._open[user_id] += 1
        try:
            yield
        finally:
            with self._lock:
                self._open[user_id] -= 1
                self._open += Counter()  # drops people without streams


S = TypeVar("S", bound=OpenStream)


class EventHub(ABC, Generic[S]):
    """All streams of one kind in one event loop, and the task that serves them.

    It is idle without streams. A subclass says what to poll and who may still listen.
    """

    name: ClassVar[str]
    poll_s: ClassVar[float]
    check_s: ClassVar[float] = 2.0
    limit: ClassVar[StreamLimit]
    _of_loops: ClassVar[WeakKeyDictionary[asyncio.AbstractEventLoop, "EventHub[OpenStream]"]]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._of_loops = WeakKeyDictionary()

    def __init__(self) -> None:
        self.streams: set[S] = set()
        self._task: asyncio.Task[None] | None = None
        self._started = asyncio.Event()
        # One connection to the database for all streams, and files do not wait for queries.
        self._database = StreamThread(f"{self.name}-database")
        self._files = StreamThread(f"{self.name}-files")

    @classmethod
    def current(cls) -> Self:
        """Return the hub of the running event loop."""
        hub: Self = cls._of_loops.setdefault(asyncio.get_running_loop(), cls())  # type: ignore[assignment, arg-type]
        return hub

    @abstractmethod
    async def begin(self) -> None:
        """Prepare for polling, each time the first stream has come."""

    @abstractmethod
    async def poll(self) -> bool:
        """Poll once and notify streams. Returns whether rights may have changed."""

    @abstractmethod
    def allowed(self, listeners: Collection[Listener]) -> Collection[Listener]:
        """Return the listeners that still have the right. Runs in the thread of the database."""

    @contextmanager
    def joined(self, stream: S) -> Iterator[S]:
        """Serve a stream for the duration of a block. Raises RateLimited for one too many."""
        user_id = stream.listener.user_id
        self.limit.check(user_id)
        self.streams.add(stream)
        if self._task is None or self._task.done():
            self._started = asyncio.Event()
            self._task = asyncio.create_task(self._run(), name=self.name)
        try:
            with self.limit.counted(user_id):
                yield stream
        finally:
            self.streams.discard(stream)

    async def started(self) -> None:
        """Wait until the hub polls, or has failed to."""
        await self._started.wait()

    async def query(self, query: Callable[[], Result]) -> Result:
        """Run a query in the hub's thread for the database."""
        return await self._database.run(query)

    async def read(self, reading: Callable[[], Result]) -> Result:
        """Read files in the hub's thread for files."""
        return await self._files.run(reading)

    async def _run(self) -> None:
        try:
            await self.begin()
            self._started.set()
            await self._serve()
        except Exception:
            # Clients reconnect by themselves, and the next stream starts the poller again.
            log.exception("event_hub_failed", hub=self.name)
            for stream in self.streams:
                stream.end(cut=False)
        finally:
            self._started.set()

    async def _serve(self) -> None:
        checked_s = time.monotonic()
        while self.streams:
            rights_changed = await self.poll()
            if rights_changed or time.monotonic() - checked_s >= self.check_s - self.poll_s:
                checked_s = time.monotonic()
                await self._cut_unauthorized()
            await asyncio.sleep(self.poll_s)

    async def _cut_unauthorized(self) -> None:
        streams = list(self.streams)
        listeners = {stream.listener for stream in streams}
        allowed = await self.query(lambda: self.allowed(listeners))
        for stream in streams:
            if stream.listener not in allowed:
                stream.end(cut=True)
