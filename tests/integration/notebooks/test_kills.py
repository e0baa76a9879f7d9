"""`kill -9` of the processes around notebooks while somebody works: kernels live on."""

import os
import signal

import pytest
from websockets.exceptions import WebSocketException

from tests.notebooks import PASSWORD, OpenDesk, Person, run_cell
from tests.portals import RunningPortal
from tests.processes import children_of, command_of, wait_for

_PARTS = {
    "proxy": "configurable-http-proxy",
    "hub": "notebooks_service",
    "agent": "workers.node_agent",
    "redis": "redis-server",
    "portal": "manage.py portal",
}
# Ten seconds are asked for; a machine that runs other tests beside this one may take longer.
_BACK_WITHIN_S = 60.0


def pid_of(running: RunningPortal, part: str) -> int:
    """Return the process of a part of Slipway; 0 while it is being started again."""
    found = [
        pid
        for pid in children_of(running.program.pid)
        if _PARTS[part] in command_of(pid) and "clearing" not in command_of(pid)
    ]
    return found[0] if found else 0


def _says(desk: OpenDesk, kernel: str) -> str:
    try:
        with desk.connect(kernel) as channel:
            return run_cell(channel, "print(answer)").strip()
    except (OSError, TimeoutError, WebSocketException):
        return ""


@pytest.mark.parametrize("part", list(_PARTS))
def test_a_kernel_lives_on_and_is_reached_again(
    running: RunningPortal, bob: Person, part: str
) -> None:
    server = bob.ready(f"kill-{part}")
    desk = bob.open(server)
    kernel = desk.kernel()
    desk.run(kernel, "answer = 42")
    killed = pid_of(running, part)
    os.kill(killed, signal.SIGKILL)
    wait_for(
        lambda: _says(desk, kernel) == "42",
        f"the kernel after the {part}",
        within_s=_BACK_WITHIN_S,
        every_s=0.25,
    )
    wait_for(lambda: pid_of(running, part) not in (0, killed), f"another {part}", within_s=60)
    # Nobody is signed out: the page comes without a form.
    page = wait_for(
        lambda: found if (found := bob.browser.get(f"{desk.base}/lab")).is_success else None,
        "the page",
        within_s=60,
        every_s=0.5,
    )
    assert page is not None
    assert str(page.url).startswith(desk.base)
    wait_for(lambda: bob.look(server) is not None, "the portal", within_s=60)
    assert bob.look(server)["state"] == "ready"
    bob.api.post(f"/projects/vision/notebooks/servers/{server}/stop").raise_for_status()
    bob.wait_for(server, "stopped")


def test_a_hub_without_its_database_is_rebuilt_from_ours(
    running: RunningPortal, bob: Person
) -> None:
    server = bob.ready("lost-hub")
    desk = bob.open(server)
    kernel = desk.kernel()
    desk.run(kernel, "answer = 42")
    os.kill(pid_of(running, "hub"), signal.SIGKILL)
    folder = running.installation.data_dir / "notebooks"
    for name in ("hub.sqlite", "cookie_secret"):
        (folder / name).unlink()
    fresh = Person(running, "bob", PASSWORD)

    def opened() -> OpenDesk | None:
        page = fresh.browser.get(str(fresh.look(server)["url"]))
        return OpenDesk(fresh, desk.base, page) if page.is_success else None

    again = wait_for(opened, "the server, through a new Hub", within_s=120, every_s=1)
    assert again is not None
    assert _says(again, kernel) == "42"
