"""A server that runs while the Hub, or its proxy, does not answer: it says so, and opens after."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.integration.notebooks.test_kills import pid_of
from tests.notebooks import Person
from tests.portals import RunningPortal
from tests.processes import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.slow]
_WORDS = {"hub": "has sent no heartbeat for", "proxy": "the notebooks proxy does not respond"}


@contextmanager
def frozen(running: RunningPortal, part: str) -> Iterator[None]:
    """Stop a process from answering without ending it, so that nobody starts another one."""
    pids = (running.program.pid, pid_of(running, part))
    assert all(pids)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in reversed(pids):
            os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("part", list(_WORDS))
def test_a_door_that_stays_shut_says_what_does_not_answer(
    running: RunningPortal, bob: Person, part: str
) -> None:
    with frozen(running, part):
        server = bob.launch("shut", tier="desk")

        def explained_server() -> Any:
            details = bob.look(server)
            return details if details and _WORDS[part] in details["explanation"] else None

        opening = wait_for(explained_server, f"word of the {part}", within_s=90, every_s=0.5)
        assert opening is not None
        assert opening["state"] == "opening"
        assert "logs/slipway.log" in opening["next_step"]
        page = bob.browser.get(f"{bob.portal}/p/vision/notebooks/servers/{server}").text
        assert _WORDS[part] in page
        assert "logs/slipway.log" in page
    bob.wait_for(server, "ready", within_s=120)
    assert bob.look(server)["next_step"] is None
    assert "jupyter-config-data" in bob.open(server).page.text
    bob.stop(server)
