"""Streams of job events: every `LOOK_S` one poll reads how all followed jobs are.

The streams themselves then read what is new for them, in the threads of the hub.
"""

import asyncio
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from portal.api.job_stream.authorization import StreamAuthorization, still_allowed
from portal.api.job_stream.log_reader import Mark, marks_of
from portal.core.event_hub import EventHub, Listener, OpenStream, StreamLimit

LOOK_S = 0.2
STREAMS_A_PERSON = 50
Result = TypeVar("Result")


@dataclass(eq=False)
class JobStream(OpenStream):
    """One open stream. `mark` differs when the state of the job has changed."""

    job_id: str = ""
    mark: Mark | None = None

    async def next_poll(self) -> None:
        """Wait until the hub has polled again."""
        await self.changed.wait()
        self.changed.clear()


class JobStreamHub(EventHub[JobStream]):
    """All job streams of one event loop."""

    name = "jobs"
    poll_s = LOOK_S
    limit = StreamLimit(STREAMS_A_PERSON, f"You follow {STREAMS_A_PERSON} jobs at once already.")

    def __init__(self) -> None:
        super().__init__()
        self._running: dict[Hashable, asyncio.Future[Any]] = {}

    async def begin(self) -> None:
        """Nothing to prepare: each poll reads everything."""

    async def poll(self) -> bool:
        """Read the state of all followed jobs and wake every stream."""
        job_ids = {stream.job_id for stream in self.streams}
        marks = await self.query(lambda: marks_of(job_ids))
        for stream in self.streams:
            stream.mark = marks.get(stream.job_id, stream.mark)
            stream.notify()
        return False

    def allowed(self, listeners: Collection[Listener]) -> Collection[Listener]:
        """Return the listeners that the gate of the route would still let in."""
        return still_allowed(cast("Collection[StreamAuthorization]", listeners))

    async def query_once(self, key: Hashable, query: Callable[[], Result]) -> Result:
        """Run a query once for all streams that ask the same at the same time."""
        task = self._running.get(key)
        if task is None:
            task = self._running[key] = asyncio.ensure_future(self.query(query))
            task.add_done_callback(lambda _: self._running.pop(key, None))
        result: Result = await asyncio.shield(task)  # a stream that ends cancels nobody's query
        return result
