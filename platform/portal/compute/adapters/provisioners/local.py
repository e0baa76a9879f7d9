"""The local provisioner: nodes that are processes of this machine.

It is for trying node groups out, and the model of provisioners of rented machines. A machine is a
folder, so that it outlives the process that made it:

    <data>/groups/<group>/<name>/machine.json   process id and start time, once it is started
                                 join-token     for its owner alone
                                 output.log     the console
                                 node/          data folder of the agent
                                 released       exists once it was asked to end
"""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from portal.compute.adapters.engines.agent_command import clean_environment
from portal.compute.adapters.local_processes import start_ticks
from portal.compute.provisioners import (
    MachineOrder,
    MachinePhase,
    MachineReport,
    Provisioner,
    ProvisionerAway,
    ProvisionerRefused,
)
from portal.core.errors import InvalidInput

DEFAULT_MACHINES = 4
_MOST_MACHINES = 64
_TAIL_BYTES = 4000
# After this long without an end a machine is killed.
_KILL_AFTER_S = 20.0


class LocalProvisionerKind:
    """Settings: `machines`, the number of machines that exist at once."""

    label = "Local processes"

    def __init__(self, data_dir: Path, url: str, task_python: str = "") -> None:
        self._data_dir = data_dir
        python = ("--python", task_python) if task_python else ()
        self._options = ("--url", url, "--hide", str(data_dir), *python)

    def clean(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return checked settings. Raises InvalidInput."""
        unknown = sorted(set(settings) - {"machines"})
        if unknown:
            raise InvalidInput(
                f"The provisioner local has no setting {unknown[0]}.",
                field="settings",
                next_step="Its only setting is machines.",
            )
        machines = settings.get("machines", DEFAULT_MACHINES)
        if not isinstance(machines, int) or isinstance(machines, bool):
            machines = 0
        if not 1 <= machines <= _MOST_MACHINES:
            raise InvalidInput(
                f"machines must be a whole number from 1 to {_MOST_MACHINES}.",
                field="settings",
                next_step="Choose how many processes may be nodes at once.",
            )
        return {"machines": machines}

    def open(self, group: str, settings: Mapping[str, Any]) -> Provisioner:
        """Return the provisioner of a group."""
        folder = self._data_dir / "groups" / group
        return LocalProvisioner(folder, self._options, int(settings["machines"]))


class LocalProvisioner:
    """The processes of one group."""

    def __init__(self, folder: Path, options: Sequence[str], machines: int) -> None:
        """`options` are given to every agent: at least the address of the portal."""
        self._folder = folder
        self._options = options
        self._machines = machines

    def make(self, order: MachineOrder) -> str:
        """Start an agent. Raises ProvisionerRefused, ProvisionerAway."""
        with self._locked():
            folder = self._folder / order.name
            if not (folder / "machine.json").exists():
                alive = sum(_is_alive(path) for path in self._machine_folders())
                if alive >= self._machines:
                    raise ProvisionerRefused(
                        f"This computer runs {self._machines} machines of the group at once, and "
                        "all of them exist."
                    )
                self._start(folder, order)
        return order.name

    def look(self) -> Mapping[str, MachineReport]:
        """Report on all machines, after killing those that do not end. Raises ProvisionerAway."""
        with self._locked():
            _reap()
            reports = {}
            for folder in self._machine_folders():
                is_released = (folder / "released").exists()
                phase = MachinePhase.ENDING if is_released else MachinePhase.RUNNING
                if not _is_alive(folder):
                    phase = MachinePhase.GONE
                detail = "" if phase is not MachinePhase.GONE else "The process has ended"
                reports[folder.name] = MachineReport(folder.name, folder.name, phase, detail)
            return reports

    def release(self, handle: str) -> None:
        """Send SIGTERM, and SIGKILL where that has not helped. Delete what is left then."""
        folder = self._folder / handle
        if not folder.is_dir():
            return
        with self._locked():
            _reap()
            mark = folder / "released"
            if not _is_alive(folder):
                self._clear(folder)
                return
            number = signal.SIGTERM
            if mark.exists():
                if time.time() - mark.stat().st_mtime < _KILL_AFTER_S:
                    return
                number = signal.SIGKILL
            else:
                mark.touch()
            _signal(folder, number)

    def output(self, handle: str) -> str:
        """Return the end of what the agent has written."""
        try:
            data = (self._folder / handle / "output.log").read_bytes()
        except OSError:
            return ""
        return data[-_TAIL_BYTES:].decode("utf-8", "replace")

    def _machine_folders(self) -> list[Path]:
        return sorted(path for path in self._folder.iterdir() if (path / "machine.json").exists())

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of the group. Raises ProvisionerAway."""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ProvisionerAway(f"{self._folder} cannot be used: {error.strerror}.") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        except OSError as error:
            raise ProvisionerAway(f"{error.filename or self._folder}: {error.strerror}.") from error
        finally:
            os.close(lock)

    def _start(self, folder: Path, order: MachineOrder) -> None:
        """Start the agent, or note the one that was started before a crash."""
        folder.mkdir(mode=0o700, exist_ok=True)
        running = _agent_of(folder)
        if running is not None:
            _write_process(folder, running)
            return
        token = folder / "join-token"
        token.unlink(missing_ok=True)
        descriptor = os.open(token, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(order.join_token)
        argv = [
            *(sys.executable, "-m", "workers.node_agent", "--name", order.name),
            *("--data-dir", str(folder / "node"), "--token-file", str(token)),
            *("--cpus", f"{order.amount.cpu_millis / 1000:g}"),
            *("--memory", f"{order.amount.memory_bytes // 2**20}MiB"),
            *("--backend", "process", "--stop-tasks-on-exit"),
            *self._options,
        ]
        for key, value in order.labels:
            argv += ["--label", f"{key}={value}"]
        with (folder / "output.log").open("ab") as output:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=clean_environment(),
                cwd=folder,
                start_new_session=True,
            )
        _CHILDREN.append(process)
        _write_process(folder, process.pid)

    def _clear(self, folder: Path) -> None:
        """End the tasks that a killed agent has left, and delete its folder."""
        _end_tasks(folder)
        shutil.rmtree(folder, ignore_errors=True)


def end_machines(groups: Path) -> int:
    """End the machines of all groups, given the folder of groups. Returns how many there were.

    Their agents save and stop their tasks. The control worker that starts next finds them ended.
    """
    folders = [path for path in groups.glob("*/*") if path.is_dir()]
    for folder in folders:
        # The control worker that started it may have ended before it noted that.
        if not (folder / "machine.json").exists() and (pid := _agent_of(folder)) is not None:
            _write_process(folder, pid)
    alive = [folder for folder in folders if _is_alive(folder)]
    for folder in alive:
        _signal(folder, signal.SIGTERM)
    deadline = time.monotonic() + _KILL_AFTER_S
    running = alive
    while running and time.monotonic() < deadline:
        time.sleep(0.05)
        running = [folder for folder in running if _is_alive(folder)]
    for folder in running:
        _signal(folder, signal.SIGKILL)
        _end_tasks(folder)
    return len(alive)


def _signal(folder: Path, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(_process(folder)[0], number)


def _end_tasks(folder: Path) -> None:
    """End the tasks that a killed agent has left."""
    subprocess.run(
        [sys.executable, "-m", "workers.node_agent.cleanup", str(folder / "node")],
        env=clean_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=30,
    )


# Children of this process, to be reaped once they end. Those of an earlier one are init's.
_CHILDREN: list[subprocess.Popen[bytes]] = []


def _reap() -> None:
    _CHILDREN[:] = [process for process in _CHILDREN if process.poll() is None]


def _agent_of(folder: Path) -> int | None:
    """Return the process id of the agent with this folder."""
    mark = f"--data-dir\0{folder / 'node'}\0".encode()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark in path.read_bytes():
                return int(path.parent.name)
        except OSError:
            continue
    return None


def _write_process(folder: Path, pid: int) -> None:
    draft = folder / "machine.json.new"
    draft.write_text(json.dumps({"pid": pid, "ticks": start_ticks(pid)}), "ascii")
    draft.rename(folder / "machine.json")


def _process(folder: Path) -> tuple[int, int]:
    """Return the id of the process of a machine and its start, in ticks since the computer's."""
    document = json.loads((folder / "machine.json").read_text("ascii"))
    return document["pid"], document["ticks"]


def _is_alive(folder: Path) -> bool:
    if not (folder / "machine.json").exists():
        return False
    pid, ticks = _process(folder)
    return ticks != 0 and start_ticks(pid) == ticks
