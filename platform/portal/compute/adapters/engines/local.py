"""The local engine: allocations are processes of this machine. The twin of Slurm in the box.

It has a number of places. What does not fit waits in the order of submission, as in Slurm. An
allocation is a folder, so that it outlives the process that ordered it:

    <data>/pools/<pool>/allocations/<name>/order.json   the order, without its tokens
                                           tokens       one line, for its owner alone; gone at start
                                           tasks.json   pids and start times, once it is started
                                           stopped      exists once it was asked to stop
"""

import contextlib
import fcntl
import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from portal.compute.adapters.engines.agent_command import (
    INDEX,
    agent_argv,
    agent_variables,
    clean_environment,
)
from portal.compute.adapters.local_processes import start_ticks
from portal.compute.engines import (
    AllocationOrder,
    AllocationPhase,
    AllocationReport,
    EndCause,
    Engine,
    EngineAway,
    EngineRefused,
    Owner,
)
from portal.core.errors import InvalidInput

DEFAULT_PLACES = 2
_MOST_PLACES = 64
_TAIL_BYTES = 2000


class LocalEngineKind:
    """Settings: `places`, the number of tasks that run at once."""

    label = "Local processes"

    def __init__(self, data_dir: Path, url: str, task_python: str = "") -> None:
        self._data_dir = data_dir
        python = ("--python", task_python) if task_python else ()
        self._options = ("--url", url, "--hide", str(data_dir), *python)

    def clean(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return checked settings. Raises InvalidInput."""
        unknown = sorted(set(settings) - {"places"})
        if unknown:
            raise InvalidInput(
                f"A local pool has no setting {unknown[0]}.",
                field="settings",
                next_step="Its only setting is places.",
            )
        places = settings.get("places", DEFAULT_PLACES)
        if not isinstance(places, int) or isinstance(places, bool):
            places = 0
        if not 1 <= places <= _MOST_PLACES:
            raise InvalidInput(
                f"places must be a whole number from 1 to {_MOST_PLACES}.",
                field="settings",
                next_step="Choose how many tasks may run at once.",
            )
        return {"places": places}

    def image_obstacle(self, settings: Mapping[str, Any]) -> str:
        """Return an obstacle: tasks run in the folders of their nodes."""
        return "local pools run no images of projects"

    def needs_account(self, settings: Mapping[str, Any]) -> bool:
        """Return False: processes belong to the user of the portal."""
        return False

    def uses_helpers(self, settings: Mapping[str, Any]) -> bool:
        """Return False: Slipway itself reaches the scheduler."""
        return False

    def given_accounts(self, settings: Mapping[str, Any]) -> None:
        """Return None: no administrator gives accounts here."""

    def link_command(self, settings: Mapping[str, Any], name: str) -> str:
        """Return nothing: there is no account to prove."""
        return ""

    def open(self, pool: str, settings: Mapping[str, Any]) -> Engine:
        """Return the engine of a pool."""
        folder = self._data_dir / "pools" / pool
        return LocalEngine(folder, self._options, int(settings["places"]))


@dataclass(frozen=True)
class _Task:
    pid: int
    ticks: int

    def is_alive(self) -> bool:
        return start_ticks(self.pid) == self.ticks


class LocalEngine:
    """The processes of one pool."""

    def __init__(self, folder: Path, options: Sequence[str], places: int) -> None:
        """`options` are given to every agent: at least the address of the portal."""
        self._folder = folder
        self._options = options
        self._allocations = folder / "allocations"
        self._places = places

    def submit(self, order: AllocationOrder) -> str:
        """Write the order down, and start it where it fits. Raises EngineRefused, EngineAway."""
        if order.tasks > self._places:
            raise EngineRefused(
                f"The pool runs {self._places} tasks at once, and this needs {order.tasks}."
            )
        with self._locked():
            folder = self._allocations / order.name
            if not folder.exists():
                draft = self._allocations / f".{order.name}"
                draft.mkdir(mode=0o700, exist_ok=True)
                argv = agent_argv(order, folder=str(self._folder / "nodes")) + tuple(self._options)
                document = {"argv": argv, "tasks": order.tasks}
                (draft / "order.json").write_text(json.dumps(document), "utf-8")
                descriptor = os.open(draft / "tokens", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
                with os.fdopen(descriptor, "w", encoding="ascii") as file:
                    json.dump(agent_variables(order), file)
                draft.rename(folder)
            self._start_waiting()
        return order.name

    def look(self, handles: Sequence[str]) -> Mapping[str, AllocationReport]:
        """Report on allocations, after starting those whose turn has come. Raises EngineAway."""
        with self._locked():
            self._start_waiting()
            return {handle: self._report(handle) for handle in handles}

    def owners_of(self, name: str) -> frozenset[Owner]:
        """Return nobody: only Slipway submits to this engine."""
        return frozenset()

    def stop(self, handle: str, *, account: str = "") -> None:
        """Send SIGTERM, and SIGKILL where that was sent before."""
        folder = self._allocations / handle
        if not folder.is_dir():
            return
        with self._locked():
            mark = folder / "stopped"
            number = signal.SIGKILL if mark.exists() else signal.SIGTERM
            mark.touch()
            for task in _tasks(folder):
                if task.is_alive():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(task.pid, number)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of the pool, for one scheduler at a time. Raises EngineAway."""
        try:
            self._allocations.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise EngineAway(f"{self._folder} cannot be used: {error.strerror}.") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        except OSError as error:
            raise EngineAway(f"{error.filename or self._folder}: {error.strerror}.") from error
        finally:
            os.close(lock)

    def _start_waiting(self) -> None:
        """Start what fits, in the order of submission. The first that does not fit ends it."""
        orders = [path for path in self._allocations.iterdir() if not path.name.startswith(".")]
        alive = sum(task.is_alive() for path in orders for task in _tasks(path))
        waiting = [
            path
            for path in orders
            if not (path / "tasks.json").exists() and not (path / "stopped").exists()
        ]
        for path in sorted(waiting, key=lambda path: (path.stat().st_mtime_ns, path.name)):
            order = json.loads((path / "order.json").read_text("utf-8"))
            if alive + order["tasks"] > self._places:
                return
            self._start(path, order["argv"], order["tasks"])
            alive += order["tasks"]

    def _start(self, folder: Path, argv: Sequence[str], tasks: int) -> None:
        variables = clean_environment() | json.loads((folder / "tokens").read_text("ascii"))
        started = []
        for index in range(tasks):
            with (folder / f"output-{index}.log").open("ab") as output:
                process = subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=variables | {INDEX: str(index)},
                    cwd=folder,
                    start_new_session=True,
                )
            started.append({"pid": process.pid, "ticks": start_ticks(process.pid)})
            _FORGOTTEN.append(process)
        draft = folder / "tasks.json.new"
        draft.write_text(json.dumps(started), "ascii")
        draft.rename(folder / "tasks.json")
        (folder / "tokens").unlink()

    def _report(self, handle: str) -> AllocationReport:
        folder = self._allocations / handle
        if not folder.is_dir():
            return AllocationReport(AllocationPhase.ENDED, cause=EndCause.VANISHED)
        _reap()
        is_stopped = (folder / "stopped").exists()
        tasks = _tasks(folder)
        if any(task.is_alive() for task in tasks):
            return AllocationReport(AllocationPhase.GRANTED)
        if tasks or is_stopped:
            cause = EndCause.CANCELLED if is_stopped else EndCause.FINISHED
            return AllocationReport(AllocationPhase.ENDED, _tail(folder), cause)
        return AllocationReport(
            AllocationPhase.WAITING, f"All {self._places} places of the pool are taken."
        )


# Children of this process, to be reaped once they end. Those of an earlier one are init's.
_FORGOTTEN: list[subprocess.Popen[bytes]] = []


def _reap() -> None:
    _FORGOTTEN[:] = [process for process in _FORGOTTEN if process.poll() is None]


def _tasks(folder: Path) -> list[_Task]:
    try:
        document = json.loads((folder / "tasks.json").read_text("ascii"))
    except FileNotFoundError:
        return []
    return [_Task(item["pid"], item["ticks"]) for item in document]


def _tail(folder: Path) -> str:
    """Return the end of what the agents have written."""
    for path in sorted(folder.glob("output-*.log")):
        text = path.read_bytes()[-_TAIL_BYTES:].decode("utf-8", "replace").strip()
        if text:
            return text.splitlines()[-1]
    return ""
