"""The log of a build says what is left out of it and has its end; who waits for one hears so."""

import asyncio
from typing import Any, cast

from workers.node_agent.backends.base import Backend, PreparedEnvironment
from workers.node_agent.builds import EnvironmentBuilds, GrowingLog

_MIB = 1024**2


def whole(log: GrowingLog) -> str:
    """Return the log as the portal is sent it, piece by piece."""
    pieces = []
    while not log.is_sent:
        pieces.append(log.next_piece())
        log.sent(log.offset + len(pieces[-1].encode()))
    return "".join(pieces)


def test_a_long_log_says_how_much_is_left_out_and_why_the_build_failed() -> None:
    log = GrowingLog()
    for _ in range(10):
        log.write("é" * (_MIB // 2))
    log.finish("\nThe environment could not be built.\n")
    text = whole(log)
    assert text.count("é") == 8 * _MIB // 2
    assert "2,097,152 more bytes of output are left out" in text
    assert "at most 8 MiB" in text
    assert text.endswith("The environment could not be built.\n")


def test_a_short_log_is_whole() -> None:
    log = GrowingLog()
    log.write("Building\n")
    log.finish()
    assert whole(log) == "Building\n"


class SlowBackend:
    """A back end whose default environment is ready when the test says so."""

    name = "process"

    def __init__(self) -> None:
        self.may_end = asyncio.Event()

    async def prepare(self, _spec: None, log: GrowingLog) -> PreparedEnvironment:
        """Build once, and be ready from then on."""
        if not self.may_end.is_set():
            log.write("Building\n")
            await self.may_end.wait()
        return PreparedEnvironment("python")


def test_a_task_that_waits_for_another_ones_build_says_what_it_waits_for() -> None:
    async def wait_for_a_build() -> None:
        reported: asyncio.Queue[str] = asyncio.Queue()
        backend = SlowBackend()
        # The default environment belongs to the node: its portal is never asked.
        builds = EnvironmentBuilds(cast("Any", None), cast("Any", None))

        async def ensure(name: str) -> None:
            await builds.ensure(
                cast("Backend", backend), None, on_build=lambda: reported.put_nowait(name)
            )

        first = asyncio.create_task(ensure("agent"))
        assert await reported.get() == "agent"
        second = asyncio.create_task(ensure("task"))
        assert await reported.get() == "task"
        backend.may_end.set()
        await asyncio.gather(first, second)
        await ensure("late")
        assert reported.empty(), "it is ready"

    asyncio.run(asyncio.wait_for(wait_for_a_build(), 30))
