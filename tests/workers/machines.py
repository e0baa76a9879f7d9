"""Real agents for tests: processes with a folder of their own, nothing left of them afterwards."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from slipway.schemas.agent import TaskReport
from tests.workers.fake_portal import LASTING_TOKEN, FakePortal, Key
from workers.launcher.atomic_files import read_json
from workers.launcher.cgroup import Cgroup
from workers.launcher.launch import StateFolder
from workers.launcher.processes import ProcessMark, descendants, start_ticks

ROOT = Path(__file__).parents[2]
Found = TypeVar("Found")


def eventually(
    look: Callable[[], Found | None], *, within_s: float = 20.0, what: str = ""
) -> Found:
    """What `look` finds, as soon as that is true; fails after the time."""
    deadline = time.monotonic() + within_s
    while True:
        result = look()
        if result:
            return result
        if time.monotonic() > deadline:
            raise AssertionError(f"did not happen within {within_s} s: {what or look}")
        time.sleep(0.01)


def always(look: Callable[[], object], *, for_s: float) -> None:
    """Fail if `look` is ever untrue during the time."""
    deadline = time.monotonic() + for_s
    while time.monotonic() < deadline:
        assert look()
        time.sleep(0.01)


class Machine:
    """A node: its folder, and the agent that runs in it or does not."""

    def __init__(
        self, portal: FakePortal, *options: str, name: str = "node-1", python: bool = True
    ) -> None:
        # Short, because sockets live in it; not pytest's own, whose paths are long.
        self.folder = Path(tempfile.mkdtemp(prefix="sl-"))
        self.name = name
        self.portal = portal
        # Tasks find what the tests find, instead of an environment built for each machine.
        self.options = (*(("--python", sys.executable) if python else ()), *options)
        self.environment: dict[str, str] = {}
        # Another user to run the agent as; only root can.
        self.user: int | None = None
        self.token = self.folder / "join-token"
        self.token.write_text(LASTING_TOKEN)
        self.data_dir = self.folder / "node"
        self.log = self.folder / "agent.log"
        self.agent: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> "Machine":
        """Start the agent; it is connected some time later."""
        command = [
            *(sys.executable, "-m", "workers.node_agent", "--url", self.portal.url),
            *("--token-file", str(self.token), "--data-dir", str(self.data_dir)),
            *("--name", self.name, "--backend", "process", "--address", "127.0.0.1"),
            *(*self.options, *options),
        ]
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{ROOT / 'platform'}{os.pathsep}{ROOT}",
            "AGENT_SECRET": "must-not-leak",
            "HOME": str(self.folder),
            **self.environment,
        }
        with self.log.open("ab") as log:
            self.agent = subprocess.Popen(
                command,
                cwd=self.folder,
                env=environment,
                stdout=log,
                stderr=log,
                user=self.user,
                group=self.user,
                extra_groups=None if self.user is None else [],
            )
        return self

    def connected(self) -> "Machine":
        """Wait for a heartbeat of the agent that runs now."""
        before = len(self.portal.state.heartbeats)
        eventually(
            lambda: len(self.portal.state.heartbeats) > before or self._fail_if_dead(),
            what="a heartbeat",
            within_s=60,  # it starts, which takes long on a busy machine
        )
        return self

    def connected_again(self) -> "Machine":
        """Wait for two more heartbeats, so that one of them was sent after now."""
        before = len(self.portal.state.heartbeats)
        eventually(lambda: len(self.portal.state.heartbeats) > before + 1, what="heartbeats")
        return self

    def _fail_if_dead(self) -> bool:
        assert self.agent is not None
        assert self.agent.poll() is None, self.log.read_text()
        return False

    def kill(self) -> None:
        """kill -9 of the agent alone."""
        assert self.agent is not None
        self.agent.kill()
        self.agent.wait()

    def terminate(self, within_s: float = 20.0) -> int:
        """SIGTERM to the agent; answers its exit status."""
        assert self.agent is not None
        self.agent.terminate()
        return self.agent.wait(within_s)

    def state(self, key: Key) -> StateFolder:
        """The state folder of an attempt."""
        return StateFolder(self.data_dir / "tasks" / f"{key[0]}-{key[1]}" / "state")

    def shim(self, key: Key) -> ProcessMark:
        """The shim of an attempt, once it has claimed it."""
        return eventually(lambda: self.state(key).shim(), what=f"a shim of {key}")

    def processes(self, key: Key) -> list[int]:
        """The shim and everything below it."""
        shim = self.shim(key)
        return [shim.pid, *descendants(shim.pid)]

    def close(self) -> None:
        """Leave nothing: agent, shims, ranks, groups, folder."""
        if self.agent is not None and self.agent.poll() is None:
            self.kill()
        for task in (self.data_dir / "tasks").glob("*"):
            shim = StateFolder(task / "state").shim()
            if shim is not None and shim.is_alive():
                for pid in [*descendants(shim.pid), shim.pid]:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            groups = read_json(task / "cgroup.json")
            if groups is not None:
                group = Cgroup.from_json(groups)
                group.kill()
                group.remove()
        shutil.rmtree(self.folder, ignore_errors=True)


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    return start_ticks(pid) is not None


class Site:
    """A portal with one node, for tests that only run tasks on it."""

    def __init__(self, *options: str) -> None:
        self.portal = FakePortal()
        self.machine = Machine(self.portal, *options).start().connected()
        self._started = 0

    def new_name(self) -> str:
        """A name no task here had before."""
        self._started += 1
        return f"task-{self._started}"

    def run(self, script: str, *arguments: str, **changes: Any) -> Key:
        """Start a script as a new task."""
        return self.portal.state.run(self.new_name(), script, *arguments, **changes)

    def run_to_end(self, script: str, *arguments: str, **changes: Any) -> TaskReport:
        """Run a script and wait for the report of its end."""
        return self.end_of(self.run(script, *arguments, **changes))

    def end_of(self, key: Key, *, within_s: float = 60.0) -> TaskReport:
        """Wait for the report of an end."""
        end = eventually(
            lambda: self.portal.state.end_of(key), within_s=within_s, what=f"the end of {key}"
        )
        assert end is not None
        return end

    def whole_log(self, end: TaskReport, rank: int = 0) -> str:
        """The log of a rank once its last line, `<end>`, has come."""
        key = (end.task_id, end.epoch)
        state = self.portal.state
        eventually(
            lambda: state.log_of(key, rank).endswith("<end>\n"),
            what=f"the whole log of rank {rank}: {state.log_of(key, rank)[-500:]!r}",
        )
        return state.log_of(key, rank).removesuffix("<end>\n")

    def answer_of(self, script: str, **changes: Any) -> Any:
        """What a script leaves in its variable `answer`."""
        full = f"import json\n{script}\nprint(json.dumps(answer))\nprint('<end>')\n"
        end = self.run_to_end(full, **changes)
        assert end.reason == "completed", end
        return json.loads(self.whole_log(end).splitlines()[-1])

    def close(self) -> None:
        """Leave nothing behind."""
        self.machine.close()
        self.portal.close()
