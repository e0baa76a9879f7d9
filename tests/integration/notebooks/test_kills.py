"""`kill -9` of the processes around notebooks while five people work: their kernels live on."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from websockets.exceptions import WebSocketException
from websockets.sync.client import ClientConnection

from tests.notebooks import COLLEAGUES, PASSWORD, OpenDesk, Person, notebook_of, run_cell
from tests.portals import RunningPortal
from tests.processes import children_of, command_of, wait_for
from tests.turns import thorough_after

pytestmark = pytest.mark.integration

_PARTS = {
    "agent": "workers.node_agent",
    "redis": "redis-server",
    "portal": "manage.py portal",
    "hub": "-m notebooks_service",
    "proxy": "notebooks_service/proxy.mjs",
}
# What a kernel says goes through these; every other part may be away without anybody noticing.
_ON_THE_WAY = frozenset({"proxy"})
_BACK_WITHIN_S = 10.0
_COUNT = "count = globals().get('count', 0) + 1; print(count)"


class Worker:
    """Somebody at work: a server, JupyterLab, a kernel, and the websocket of the page."""

    def __init__(self, person: Person) -> None:
        self.person = person
        self.server = person.ready(tier="desk")
        self.desk = person.open(self.server)
        self.kernel = self.desk.kernel()
        self.count = 0
        self._channel: ClientConnection | None = None
        self._open = ExitStack()

    def counts_on(self, *, reconnects: bool) -> bool:
        """Run a cell that counts; whether it is the same kernel that answered.

        As JupyterLab does, ask on the websocket that is open, and `reconnects` where that is gone.
        """
        if self._channel is None and not reconnects:
            return False
        try:
            if self._channel is None:
                self._channel = self._open.enter_context(self.desk.connect(self.kernel))
            output = run_cell(self._channel, _COUNT, within_s=_BACK_WITHIN_S).strip()
        except (OSError, TimeoutError, WebSocketException):
            self._channel = None
            self._open.close()
            return False
        went_on = output.isdigit() and int(output) > self.count
        self.count = int(output) if went_on else self.count
        return went_on

    def saves(self, words: str) -> str:
        """Save a notebook; answers its path."""
        path = f"{self.server}.ipynb"
        made = self.desk.call("PUT", f"contents/{path}", json=notebook_of(words))
        assert made.is_success, made.text
        return path

    def is_signed_in(self) -> bool:
        """Whether the page comes without a form."""
        page = self.person.browser.get(f"{self.desk.base}/lab")
        return page.is_success and str(page.url).startswith(self.desk.base)

    def stop(self) -> None:
        """Go home."""
        self._open.close()
        stop = f"/projects/vision/notebooks/servers/{self.server}/stop"
        self.person.api.post(stop).raise_for_status()


@pytest.fixture(scope="module")
def five(running: RunningPortal) -> Iterator[list[Worker]]:
    """Five people at work."""
    with ExitStack() as leaving:
        workers = []
        for name in COLLEAGUES:
            workers.append(Worker(Person(running, name, PASSWORD)))
            leaving.callback(workers[-1].stop)
        for worker in workers:
            assert worker.counts_on(reconnects=True)
        yield workers


def pid_of(running: RunningPortal, part: str) -> int:
    """Return the process of a part of Slipway; 0 while it is being started again."""
    pids = [
        pid
        for pid in children_of(running.program.pid)
        if _PARTS[part] in command_of(pid) and "cleanup" not in command_of(pid)
    ]
    return pids[0] if pids else 0


@pytest.mark.parametrize("part", thorough_after(0, ["proxy", "portal", "hub", "redis", "agent"]))
def test_five_people_work_on_and_nothing_saved_is_lost(
    running: RunningPortal, five: list[Worker], part: str
) -> None:
    killed = pid_of(running, part)
    os.kill(killed, signal.SIGKILL)
    began = time.monotonic()
    if part in _ON_THE_WAY:
        for worker in five:
            wait_for(
                lambda worker=worker: worker.counts_on(reconnects=True),  # type: ignore[misc]
                f"the kernel of {worker.server} after the {part}",
                within_s=_BACK_WITHIN_S - (time.monotonic() - began),
                every_s=0.1,
            )
    else:
        for worker in five:
            assert worker.counts_on(reconnects=False), f"{worker.server} noticed the {part}"
    saved = {worker.saves(f"as the {part} died"): worker for worker in five}
    wait_for(lambda: pid_of(running, part) not in (0, killed), f"another {part}", within_s=60)
    for worker in five:
        wait_for(worker.is_signed_in, "the page, without a form", within_s=60, every_s=0.5)
        wait_for(lambda w=worker: w.person.look(w.server), "the portal", within_s=60)  # type: ignore[misc]
        assert worker.person.look(worker.server)["state"] == "ready"
        assert worker.counts_on(reconnects=True)
    for path, worker in saved.items():
        wait_for(
            lambda p=path, w=worker: w.person.says_of_saves(p, f"as the {part} died"),  # type: ignore[misc]
            f"the version of {path}",
            within_s=60,
            every_s=0.5,
        )


@pytest.mark.thorough
def test_a_hub_without_its_database_is_rebuilt_from_ours(
    running: RunningPortal, five: list[Worker]
) -> None:
    worker = five[1]
    os.kill(pid_of(running, "hub"), signal.SIGKILL)
    folder = running.installation.data_dir / "notebooks"
    for name in ("hub.sqlite", "cookie_secret"):
        (folder / name).unlink()
    fresh = Person(running, "bob", PASSWORD)

    def opened() -> OpenDesk | None:
        page = fresh.browser.get(str(fresh.look(worker.server)["url"]))
        return OpenDesk(fresh, worker.desk.base, page) if page.is_success else None

    again = wait_for(opened, "the server, through a new Hub", within_s=120, every_s=1)
    assert again is not None
    assert int(again.run(worker.kernel, _COUNT)) > worker.count
