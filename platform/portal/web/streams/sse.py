"""Changes that open pages are notified of, as server-sent events.

Every `POLL_S` the hub reads the new rows of `LiveEvent` and notifies the streams of their topics.
A change of rights has the rights of all streams checked at once. A page that lost its right gets
`live:cut`.

PostgreSQL assigns numbers before rows commit, so a lower number may appear after a higher one.
Numbers therefore settle for `SETTLE_S`: until then every poll reads them again and skips what was
delivered, and the id that a browser resumes from is the settled one. An event received twice only
makes a page reload twice.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass, field
from typing import cast

from django.db.models import Min

from portal.core.errors import RateLimited
from portal.core.event_hub import EventHub, Listener, OpenStream, StreamLimit
from portal.web.models import LiveEvent
from portal.web.streams.auth import PageListener, authorized_listeners

POLL_S = 0.5
HEARTBEAT_S = 15.0
SETTLE_S = 10.0
MOST_ROWS = 1_000
MOST_WAITING = 100
STREAMS_A_PERSON = 12
RETRY_MS = 1_000
CUT, STALE = "live:cut", "live:stale"
# Changes after which a person may have lost access: permissions are checked immediately.
ABOUT_RIGHTS = frozenset({"account", "members", "project", "projects", "sessions"})


def newest_id() -> int:
    """Return the number of the newest event, from which a page that is rendered now listens."""
    newest = LiveEvent.objects.order_by("-pk").values_list("pk", flat=True).first()
    return newest or 0


@dataclass(eq=False)
class PageStream(OpenStream):
    """The stream of one open page. `waiting` has its pending events, each once."""

    topics: frozenset[str] = frozenset()
    waiting: dict[str, None] = field(default_factory=dict)

    @classmethod
    def of(cls, listener: PageListener) -> "PageStream":
        """Return the stream of a page."""
        return cls(listener, topics=listener.topics)

    def queue(self, what: str) -> None:
        """Notify the page of a kind of change. Pending ones of the same kind are merged."""
        if len(self.waiting) < MOST_WAITING:
            self.waiting[what] = None
        else:
            self.waiting = {STALE: None}
        self.notify()

    def end(self, *, cut: bool) -> None:
        """End the stream. `cut` tells the page that it may no longer listen."""
        self.waiting = {CUT: None} if cut else {}
        super().end(cut=cut)


class PageHub(EventHub[PageStream]):
    """The streams of all open pages, also those that follow a log."""

    name = "pages"
    poll_s = POLL_S
    limit = StreamLimit(STREAMS_A_PERSON, "You have too many pages open.")

    def __init__(self) -> None:
        super().__init__()
        self.settled = 0
        self._seen: dict[int, float] = {}

    async def begin(self) -> None:
        """Start behind the newest event."""
        self._seen = {}
        self.settled = await self.query(newest_id)

    async def poll(self) -> bool:
        """Deliver new events."""
        return bool(self._deliver(await self.query(self._new_rows)) & ABOUT_RIGHTS)

    def allowed(self, listeners: Collection[Listener]) -> Collection[Listener]:
        """Return the listeners whose pages would still open."""
        return authorized_listeners(cast("Collection[PageListener]", listeners))

    def _new_rows(self) -> list[tuple[int, str, str]]:
        rows = LiveEvent.objects.filter(pk__gt=self.settled).order_by("pk")
        return list(rows.values_list("pk", "topic", "what")[:MOST_ROWS])

    def _deliver(self, rows: list[tuple[int, str, str]]) -> set[str]:
        """Notify the pages that show changed objects, and return the kinds of change."""
        now_s = time.monotonic()
        kinds = set()
        for number, topic, what in rows:
            if number in self._seen:
                continue
            self._seen[number] = now_s
            kinds.add(what)
            for stream in self.streams:
                if topic in stream.topics:
                    stream.queue(f"live:{what}")
        self._expire_seen(now_s, crowded=len(rows) == MOST_ROWS)
        return kinds

    def _expire_seen(self, now_s: float, *, crowded: bool) -> None:
        """Forget numbers below which no row can appear any more, sooner when there are many."""
        old = [number for number, at in self._seen.items() if now_s - at > SETTLE_S]
        if crowded:
            old = sorted(self._seen)[: MOST_ROWS // 2]
        if old:
            self.settled = max(self.settled, *old)
            self._seen = {n: at for n, at in self._seen.items() if n > self.settled}


async def event_stream(listener: PageListener, since: int) -> AsyncIterator[bytes]:
    """Stream server-sent events to one page: first what it missed since event `since`."""
    hub = PageHub.current()
    try:
        with hub.joined(PageStream.of(listener)) as stream:
            await hub.started()
            yield f"retry: {RETRY_MS}\nid: {hub.settled}\n\n".encode()
            for what in await hub.query(lambda: _missed_events(listener, since)):
                stream.queue(what)
            while not stream.is_ended:
                yield await _next(stream, hub)
            yield _format_pending(stream, hub)
    except RateLimited as error:
        yield f"retry: {1000 * (error.retry_after_s or 10)}\n\n".encode()


async def _next(stream: PageStream, hub: PageHub) -> bytes:
    try:
        async with asyncio.timeout(HEARTBEAT_S):
            await stream.changed.wait()
    except TimeoutError:
        return b": still here\n\n"
    return b"" if stream.is_ended else _format_pending(stream, hub)


def _format_pending(stream: PageStream, hub: PageHub) -> bytes:
    events, stream.waiting = stream.waiting, {}
    stream.changed.clear()
    return "".join(f"event: {what}\nid: {hub.settled}\ndata: \n\n" for what in events).encode()


def _missed_events(listener: PageListener, since: int) -> list[str]:
    """Return the events after event `since`, or STALE if it precedes the stored events."""
    oldest = LiveEvent.objects.aggregate(oldest=Min("pk"))["oldest"]
    if since and oldest is not None and since < oldest - 1:
        return [STALE]
    missed = LiveEvent.objects.filter(pk__gt=since, topic__in=listener.topics)
    return [f"live:{what}" for what in missed.values_list("what", flat=True).distinct()]
