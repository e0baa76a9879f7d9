"""A real portal for tests: `manage.py portal` over an installation of its own."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from tests.peopled import copy_files, make_people, template_with
from tests.processes import Installation, Program, installation, wait_for

PEOPLE = ("alice", "bob", "charlie", "root")


class RunningPortal:
    """A portal process. `tokens` holds a token of each of PEOPLE; only root administers.

    `command` is what of `manage.py` starts it: the portal alone, or `up` for all of Slipway.
    """

    def __init__(self, at: Installation, tokens: dict[str, str], command: tuple[str, ...]) -> None:
        self.installation = at
        self.command = command
        self.tokens = tokens
        self.url = f"http://127.0.0.1:{at.portal_port}"
        self.program = self._start()

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        return "127.0.0.1", self.installation.portal_port

    def _start(self) -> Program:
        program = self.installation.start("manage.py", *self.command)
        wait_for(lambda: self._answers(program), "answer of the portal", within_s=60)
        return program

    def _answers(self, program: Program) -> bool:
        assert program.process.poll() is None, program.text()
        try:
            return httpx.get(f"{self.url}/healthz", timeout=2).is_success
        except httpx.TransportError:
            return False

    def kill(self) -> None:
        """Kill the process as a crash would."""
        self.program.signal(signal.SIGKILL)
        self.program.wait()

    def restart(self) -> None:
        """Start it again on the same port and data, after `kill`."""
        self.program = self._start()

    def log(self) -> str:
        """What the process that runs now has logged."""
        return self.program.text()

    def client(self, name: str | None = None, **headers: str) -> httpx.Client:
        """Return a client of the API that speaks for one of PEOPLE, or for nobody."""
        if name is not None:
            headers["Authorization"] = f"Bearer {self.tokens[name]}"
        return httpx.Client(base_url=f"{self.url}/api/v1", headers=headers, timeout=30)


@contextmanager
def running_portal(
    folder: Path,
    people: tuple[str, ...] = PEOPLE,
    /,
    *,
    command: tuple[str, ...] = ("portal",),
    **environ: str,
) -> Iterator[RunningPortal]:
    """Yield a portal over a fresh database in `folder`; `environ` adds settings."""
    template = template_with(people)
    with installation(folder, source=template.database if template else "") as made:
        made.environ |= {"SLIPWAY_API_REQUESTS_PER_MINUTE": "1000000"} | environ
        if template is None:
            tokens = make_people(made, people)
        else:
            copy_files(template, made)
            tokens = template.tokens
        yield RunningPortal(made, tokens, command)


@contextmanager
def running_slipway(
    folder: Path,
    people: tuple[str, ...] = PEOPLE,
    /,
    *,
    node: Callable[[RunningPortal], Program] | None = None,
    **environ: str,
) -> Iterator[RunningPortal]:
    """Yield all of Slipway, with the node of this machine, which runs jobs in our own Python.

    `node` starts the agent of another node in its place.
    """
    embedded = "false" if node else "true"
    environ = {"SLIPWAY_EMBEDDED_NODE": embedded, "SLIPWAY_JOB_PYTHON": sys.executable} | environ
    command = ("up", "--no-input")
    with (
        running_portal(folder, people, command=command, **environ) as running,
        ExitStack() as stack,
    ):
        if node is not None:
            agent = node(running)
            stack.callback(agent.end)
            stack.callback(agent.wait, 30)
            stack.callback(agent.signal, signal.SIGTERM)
        with running.client("root") as root:
            wait_for(lambda: root.get("/tiers").json()["items"], "tiers of the node", within_s=60)
        yield running


@pytest.fixture(scope="session")
def portal(plain_portal: RunningPortal) -> RunningPortal:
    """The same for every folder whose conftest imports this fixture."""
    return plain_portal


@pytest.fixture(scope="session")
def plain_portal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPortal]:
    """A portal nobody stands in front of; imported by the conftest of all tests.

    A fixture of a session that several folders import is made anew in each of them.
    """
    with running_portal(tmp_path_factory.mktemp("portal"), SLIPWAY_LOG_FORMAT="json") as running:
        yield running
