"""Keeps warm processes: one per environment and flavour, a bounded number, alive while useful."""

import asyncio
import json
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from slipway.schemas.agent import WarmFacts
from workers.launcher.confinement import Confinement
from workers.launcher.handover import sealed_file, send_descriptor
from workers.launcher.launch import Launch
from workers.launcher.platform_programs import PLATFORM_PROGRAMS
from workers.launcher.processes import uptime_s
from workers.node_agent.host_info import memory_bytes, memory_used_bytes

log = logging.getLogger(__name__)
# With -I there is no entry of the working folder to replace.
_ENTER: Final = "from workers.launcher.{module} import main; main()"
_BOOT: Final = "import sys; sys.path[: sys.path[:1] == ['']] = [sys.argv[1]]; "
_BOOT_ISOLATED: Final = "import sys; sys.path.insert(0, sys.argv[1]); "
_READY_WITHIN_S: Final = 60.0
_FORK_WITHIN_S: Final = 5.0
# Approximate size of a warm process. It is only started if this much memory is free.
_NEEDS_FREE_BYTES: Final = 1 << 30
_FAILED_FOR_S: Final = 60.0
_LATER_S: Final = 20.0


def boot(module: str, *, isolated: bool = False) -> str:
    """Return the code for `python -c` that runs a launcher module.

    Its first argument is the root.
    """
    return (_BOOT_ISOLATED if isolated else _BOOT) + _ENTER.format(module=module)


def confined_command(code: Path, confinement: Confinement, command: Sequence[str]) -> list[str]:
    """A command line that first gives up what the confinement leaves out."""
    return [
        *(sys.executable, "-I", "-S", "-c", boot("confinement", isolated=True), str(code)),
        *(part for path in confinement.writable for part in ("-w", path)),
        *(part for path in confinement.readable for part in ("-r", path)),
        *("--", *command),
    ]


class CannotFork(Exception):
    """No warm process is available for the given reason. Use a cold start."""


@dataclass
class WarmProcess:
    """One process, from its start to its end."""

    python: str
    flavour: str
    process: subprocess.Popen[bytes]
    socket: socket.socket
    ready: asyncio.Task[int] = field(init=False)
    used_at_s: float = field(default_factory=uptime_s)
    pinned: bool = False

    @property
    def state(self) -> str:
        """starting, ready or failed."""
        if not self.ready.done():
            return "starting"
        return "failed" if self.ready.cancelled() or self.ready.exception() else "ready"

    @property
    def memory_bytes(self) -> int:
        """Memory it holds, as it measured itself when it was ready."""
        return self.ready.result() if self.state == "ready" else 0

    def close(self) -> None:
        """End the process. Tasks that were forked from it continue."""
        self.ready.cancel()
        self.socket.close()
        self.process.kill()
        self.process.wait()


class WarmPool:
    """Forks tasks from warm processes, and says CannotFork whenever a cold start is better."""

    def __init__(
        self,
        code: Path,
        home: Path,
        sdk: Path,
        *,
        limit: int,
        confinement: Confinement | None,
        only_trusted: bool,
        environment: Mapping[str, str],
    ) -> None:
        self._code = code
        self._home = home
        self._sdk = sdk
        self._limit = limit
        self._confinement = confinement
        # Tasks of all projects are forked from a warm process, which has the agent's permissions.
        # So it uses the node's own environment, never one chosen by a project.
        self._only_trusted = only_trusted
        self._trusted: set[str] = set()
        # Variables that tasks get as well, because libraries read some of them when they load, such
        # as the certificates to trust.
        self._passed = dict(environment)
        self._processes: dict[tuple[str, str], WarmProcess] = {}
        self._failed_at_s: dict[tuple[str, str], float] = {}
        self._due_at_s: dict[tuple[str, str], float] = {}
        self._obstacle = ""
        self._forking = asyncio.Lock()
        # By interpreter: the folders it needs, as recorded by the agent.
        self._readable: dict[str, tuple[str, ...]] = {}

    def facts(self) -> list[WarmFacts]:
        """Return the warm processes for the heartbeat."""
        return [
            WarmFacts(flavour=warm.flavour, state=warm.state, memory_bytes=warm.memory_bytes)
            for warm in self._processes.values()
        ]

    def trust(self, python: str) -> None:
        """Allow warm processes of this interpreter: it is the node's own."""
        self._trusted.add(python)

    def keep_warm(self, python: str, readable: tuple[str, ...], flavours: Sequence[str]) -> None:
        """Keep these flavours of the platform's own environment warm, from now on."""
        self._readable[python] = readable
        requested = {(python, flavour) for flavour in flavours if flavour in PLATFORM_PROGRAMS}
        for key, warm in self._processes.items():
            warm.pinned = key in requested
        for key in sorted(requested):
            if not self._recently_failed(key):
                try:
                    self._get(key).pinned = True
                except CannotFork as error:
                    # Heartbeats repeat the request every second.
                    if str(error) != self._obstacle:
                        log.info("no warm processes: %s", error)
                    self._obstacle = str(error)

    async def fork(self, launch: Launch, flavour: str) -> int:
        """Fork the shim of a task and return its pid. Raises CannotFork."""
        program = PLATFORM_PROGRAMS.get(flavour)
        if program is None:
            raise CannotFork(f"this node knows no program {flavour}")
        if self._only_trusted and launch.python not in self._trusted:
            raise CannotFork("only the node's own environment has warm processes, not a project's")
        key = (launch.python, flavour)
        self._readable[launch.python] = launch.confined.readable
        if self._recently_failed(key):
            raise CannotFork("the warm process has just failed")
        if not program.is_awaited and not self._is_ready(key):
            self._due_at_s.setdefault(key, uptime_s() + _LATER_S)
            raise CannotFork("no warm process is ready yet")
        warm = self._get(key)
        warm.used_at_s = uptime_s()
        try:
            # Not awaited directly: if it is dropped, its cancellation must not cancel this task.
            await asyncio.wait({warm.ready}, timeout=_READY_WITHIN_S)
            if warm.state != "ready":
                raise CannotFork(f"it is {warm.state} after {_READY_WITHIN_S:.0f} s")
            async with self._forking:
                return await asyncio.wait_for(_request_fork(warm.socket, launch), _FORK_WITHIN_S)
        except (OSError, TimeoutError, ValueError, CannotFork) as error:
            self._mark_failed(key, f"{type(error).__name__}: {error}")
            raise CannotFork(f"the warm process failed ({error})") from error

    def maintain(self) -> None:
        """Notice warm processes that died, start those that must stay warm or are now due."""
        for key in [key for key, due_s in self._due_at_s.items() if due_s <= uptime_s()]:
            del self._due_at_s[key]
            if not self._recently_failed(key):
                try:
                    self._get(key)
                except CannotFork as error:
                    log.info("a warm process was not started: %s", error)
        for key, warm in list(self._processes.items()):
            if warm.process.poll() is None:
                continue
            self._discard(key, warm)
            if warm.pinned:
                try:
                    self._get(key).pinned = True
                except CannotFork as error:
                    log.info("no warm processes: %s", error)

    def close(self) -> None:
        """End all of them."""
        for warm in self._processes.values():
            warm.close()
        self._processes.clear()

    def _is_ready(self, key: tuple[str, str]) -> bool:
        warm = self._processes.get(key)
        return warm is not None and warm.process.poll() is None and warm.state == "ready"

    def _recently_failed(self, key: tuple[str, str]) -> bool:
        failed_at_s = self._failed_at_s.get(key)
        return failed_at_s is not None and uptime_s() - failed_at_s < _FAILED_FOR_S

    def _get(self, key: tuple[str, str]) -> WarmProcess:
        warm = self._processes.get(key)
        if warm is not None and warm.process.poll() is None:
            return warm
        if warm is not None:
            self._discard(key, warm)
        if self._recently_failed(key):
            raise CannotFork("the warm process has just failed")
        self._evict_idle()
        if memory_bytes() - memory_used_bytes() < _NEEDS_FREE_BYTES:
            raise CannotFork("the machine has too little free memory for a warm process")
        self._processes[key] = self._start(*key)
        return self._processes[key]

    def _evict_idle(self) -> None:
        while len(self._processes) >= max(self._limit, 0):
            idle = [key for key, warm in self._processes.items() if not warm.pinned]
            if not idle:
                raise CannotFork("the node has reached its limit of warm processes")
            oldest = min(idle, key=lambda key: self._processes[key].used_at_s)
            self._processes.pop(oldest).close()

    def _discard(self, key: tuple[str, str], warm: WarmProcess) -> None:
        """Forget one that ended: another may come at once, unless it never got ready."""
        was_ready = warm.state == "ready"
        self._mark_failed(key, f"it exited with status {warm.process.returncode}")
        if was_ready:
            del self._failed_at_s[key]

    def _mark_failed(self, key: tuple[str, str], why: str) -> None:
        warm = self._processes.pop(key, None)
        self._failed_at_s[key] = uptime_s()
        if warm is not None:
            log.warning("a warm %s process was discarded: %s", warm.flavour, why)
            warm.close()

    def _start(self, python: str, flavour: str) -> WarmProcess:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            process = subprocess.Popen(
                self._command(python, theirs.fileno(), flavour),
                env=self._environment(python),
                cwd=self._home,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        warm = WarmProcess(python, flavour, process, ours)
        warm.ready = asyncio.create_task(_wait_until_ready(ours, flavour))
        return warm

    def _command(self, python: str, door: int, flavour: str) -> list[str]:
        command = [python, "-c", boot("warm"), str(self._code), str(door), flavour]
        command.append(str(self._sdk))
        if self._confinement is None:
            return command
        # Code that an environment runs when Python starts must not reach our secrets either.
        return confined_command(
            self._code,
            Confinement(
                (*self._confinement.writable, str(self._home)),
                (*self._confinement.readable, *self._readable.get(python, ())),
            ),
            command,
        )

    def _environment(self, python: str) -> dict[str, str]:
        return self._passed | {
            "PATH": f"{Path(python).parent}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self._home),
            "LANG": "C.UTF-8",
            # One thread until the fork. A rank sets the number that its task was given.
            "OMP_NUM_THREADS": "1",
            # Both start threads, and a process with threads cannot be forked.
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "JE_ARROW_MALLOC_CONF": "background_thread:false",
            # Counting GPUs must not initialise CUDA, which does not survive a fork.
            "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
        }


async def _wait_until_ready(door: socket.socket, flavour: str) -> int:
    started_at_s = uptime_s()
    report = await _receive(door)
    memory = int(report["memory_bytes"])
    took_s = uptime_s() - started_at_s
    log.info("a %s process is warm after %.1f s, %d MiB", flavour, took_s, memory >> 20)
    return memory


async def _request_fork(door: socket.socket, launch: Launch) -> int:
    descriptor = sealed_file(launch.to_json().encode())
    try:
        # One byte and a descriptor never block, because there is at most one launch at a time.
        send_descriptor(door, descriptor)
    finally:
        os.close(descriptor)
    answer = await _receive(door)
    if "error" in answer:
        raise CannotFork(str(answer["error"]))
    return int(answer["pid"])


async def _receive(door: socket.socket) -> dict[str, Any]:
    length = int.from_bytes(await _receive_exactly(door, 4), "big")
    document: dict[str, Any] = json.loads(await _receive_exactly(door, length))
    return document


async def _receive_exactly(door: socket.socket, count: int) -> bytes:
    loop = asyncio.get_running_loop()
    data = b""
    while len(data) < count:
        part = await loop.sock_recv(door, count - len(data))
        if not part:
            raise CannotFork("it ended")
        data += part
    return data
