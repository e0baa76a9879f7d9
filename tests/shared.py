"""A Slipway that one module of tests after another uses, as long as the next test does, too.

Starting all of Slipway takes twenty seconds of a processor, and one that nobody uses any more takes
a tenth of one. Where a test has failed, there may be anything left of it: the next module, and the
same test when it is run again with fixtures made anew, gets another Slipway.
"""

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, ExitStack

from tests.portals import RunningPortal

Open = Callable[[], AbstractContextManager[RunningPortal]]


class Shared:
    """The Slipway of those tests whose fixtures have a name."""

    def __init__(self) -> None:
        self._open = ExitStack()
        self._running: RunningPortal | None = None
        self._trusted = True

    def get(self, start: Open) -> RunningPortal:
        """Return the one that runs, or start one."""
        running = self._running
        if running is None or not self._trusted or running.program.process.poll() is not None:
            self.end()
            running = self._running = self._open.enter_context(start())
        return running

    def distrust(self) -> None:
        """Let nobody else have this one."""
        self._trusted = False

    def end(self) -> None:
        """End it, where it runs."""
        self._running, self._trusted = None, True
        self._open.close()


_shared: dict[str, Shared] = {}


def shared(fixture: str) -> Shared:
    """Return what the tests share that use a fixture."""
    return _shared.setdefault(fixture, Shared())


def distrust_all() -> None:
    """Let nobody else have what a test that failed has used."""
    for resource in _shared.values():
        resource.distrust()


def end_all_but(fixtures: Collection[str]) -> None:
    """End what the next test, which uses these fixtures, does not use."""
    for name, resource in _shared.items():
        if name not in fixtures:
            resource.end()
