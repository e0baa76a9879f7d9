"""Keep a set of processes running: start, watch, restart with back-off, stop."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from portal.config.supervision import guard
from portal.config.supervision.children import has_ended, reason_of, signal_group, spawn
from portal.config.supervision.console import Console, LineReader
from portal.config.supervision.errors import StartError
from portal.config.supervision.probes import Probe

NAME = "slipway"
# A program that exits with this status before it was ready has invalid settings.
REFUSED = 2
_NOT_STARTED = 127
_PROBE_EVERY_S = 0.05
_LOOK_FOR_LIFE_EVERY_S = 1.0
_LONGEST_LOOK_S = 6.0
_FIRST_START_DEADLINE_S = 120.0
_FIRST_START_ATTEMPTS = 3
_OPTIONAL_PATIENCE_S = 10.0
_STEADY_S = 10.0
_LONGEST_DELAY_S = 30.0
_LINES_KEPT = 20


@dataclass(frozen=True)
class ProcessSpec:
    """A process to supervise: how to start it, whether it is ready and alive, how to stop it.

    One that was ready and then shows no sign of life for `silent_for_s` seconds is killed and
    restarted: a frozen process ends no more by itself than a deadlock does.
    """

    name: str
    argv: tuple[str, ...]
    ready: Probe
    alive: Probe
    env: Mapping[str, str] = field(default_factory=dict)
    stdin: str = ""
    stop_grace_s: float = 4.5
    silent_for_s: float = 20.0
    # Stopped only when the processes that need it are gone.
    serves_others: bool = False
    # Stopped before all others, so that they still receive its requests.
    uses_others: bool = False
    # Optional: waited for, but the others run without it when it cannot start.
    optional: bool = False
    # If true, `up` reports readiness only when this one is ready.
    awaited: bool = True
    # Cleans up processes it left running: run after it has ended for good, unless cleanly.
    clear_up: tuple[str, ...] = ()


class Backoff:
    """Delay before the next start: zero at first, longer while the process keeps dying."""

    def __init__(self) -> None:
        self._deaths = 0

    def delay_after(self, ready_for_s: float) -> float:
        """Return the seconds to wait after a death. `ready_for_s` is 0 if it never became ready."""
        if ready_for_s >= _STEADY_S:
            self._deaths = 0
        self._deaths += 1
        return 0.0 if self._deaths == 1 else min(_LONGEST_DELAY_S, 2.0 ** (self._deaths - 3))


class _Guard:
    """The other end of `guard.py`: reports the live groups to it and restarts it if it dies."""

    def __init__(self, specs: list[ProcessSpec], cwd: Path, keep_open: tuple[int, ...]) -> None:
        self._cwd = cwd
        self._keep_open = keep_open
        self._groups: set[int] = set()
        self._programs = {
            spec.name: json.dumps({"argv": spec.clear_up, "env": dict(spec.env)})
            for spec in specs
            if spec.clear_up
        }
        self._start()

    def _start(self) -> None:
        reading, self._pipe = os.pipe()
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-E", str(Path(guard.__file__))],
            stdin=reading,
            cwd=self._cwd,
            start_new_session=True,
            pass_fds=self._keep_open,
        )
        os.close(reading)
        for name, program in self._programs.items():
            self._send(f"!{name} {program}\n")
        for group in self._groups:
            self._send(f"+{group}\n")

    def _send(self, line: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # it died; `revive` repeats the list
            os.write(self._pipe, line.encode())

    def announce(self, group: int) -> None:
        """Announce a group from the child between fork and exec, so that no group is unknown."""
        self._send(f"+{group}\n")

    def add(self, group: int) -> None:
        """Remember a group, for the next guard if this one is killed."""
        self._groups.add(group)

    def forget(self, group: int) -> None:
        """Remove a group that is gone."""
        self._groups.discard(group)
        self._send(f"-{group}\n")

    def record_clean_exit(self, name: str) -> None:
        """Record that a process has ended for good and left nothing to clean up."""
        self._programs.pop(name, None)
        self._send(f"~{name}\n")

    def revive(self) -> bool:
        """Start another guard if this one has died. Return True if it did."""
        if self.process.poll() is None:
            return False
        os.close(self._pipe)
        self._start()
        return True

    def dismiss(self) -> None:
        """Close the pipe and wait until the guard has exited."""
        os.close(self._pipe)
        self.process.wait()


class _ProcessRunner:
    def __init__(self, spec: ProcessSpec, console: Console, guard_: _Guard, cwd: Path) -> None:
        self.spec = spec
        self.is_ready = asyncio.Event()
        self.unready_reason = "it has not been checked yet"
        self.task = asyncio.create_task(self._run())
        self._console = console
        self._guard = guard_
        self._cwd = cwd
        self._backoff = Backoff()
        self._child: subprocess.Popen[bytes] | None = None
        self._ended = asyncio.Event()
        self._stopping = False
        self._was_ready_once = False
        self._ready_since: float | None = None
        self._lines: deque[str] = deque(maxlen=_LINES_KEPT)

    async def _run(self) -> None:
        attempts = 0
        while True:
            attempts += 1
            code = await self._run_once()
            if self._stopping:
                if code == 0:
                    self._guard.record_clean_exit(self.spec.name)
                return
            if self._ready_since is None:
                for text in self._lines:
                    self._console.line(self.spec.name, text)
            refused = code == REFUSED or attempts >= _FIRST_START_ATTEMPTS
            if refused and not self._was_ready_once and not self.spec.optional:
                raise StartError(f"{self.spec.name} cannot start: it {reason_of(code)}; see above.")
            ready_for = time.monotonic() - self._ready_since if self._ready_since else 0.0
            delay = self._backoff.delay_after(ready_for)
            when = f"in {delay:g} s" if delay else "now"
            self._print(f"{self.spec.name} {reason_of(code)}; starting it again {when}")
            await asyncio.sleep(delay)

    async def _run_once(self) -> int:
        """Start the process, wait for its end, clean up what it started. Return its exit code."""
        self._ended.clear()
        self._ready_since = None
        self._lines.clear()
        reading, writing = os.pipe()
        reader = LineReader(reading, self._log)
        try:
            child = spawn(
                self.spec.argv,
                env=self.spec.env,
                cwd=self._cwd,
                output=writing,
                announce=self._guard.announce,
                stdin=self.spec.stdin,
            )
        except OSError as error:
            os.close(reading)
            self._log(f"{self.spec.argv[0]} cannot be started: {error.strerror}")
            return _NOT_STARTED
        finally:
            os.close(writing)
        self._child = child
        self._guard.add(child.pid)
        loop = asyncio.get_running_loop()
        loop.add_reader(reading, lambda: reader.read() or loop.remove_reader(reading))
        probing = asyncio.create_task(self._probe(child))
        self.notice_end()  # it may have ended before we knew it
        await self._ended.wait()
        probing.cancel()
        self.is_ready.clear()
        signal_group(child, signal.SIGKILL)
        code = child.wait()
        self._child = None
        self._guard.forget(child.pid)
        reader.read()
        loop.remove_reader(reading)
        os.close(reading)
        return code

    async def _probe(self, child: subprocess.Popen[bytes]) -> None:
        await self._probe_until_ready()
        await self._probe_until_silent()
        if self._stopping:
            return
        self._print(
            f"{self.spec.name} did not respond for {self.spec.silent_for_s:g} s; killing it"
        )
        signal_group(child, signal.SIGKILL)

    async def _probe_until_silent(self) -> None:
        answered = time.monotonic()
        while time.monotonic() - answered < self.spec.silent_for_s:
            began = time.monotonic()
            await asyncio.sleep(_LOOK_FOR_LIFE_EVERY_S)
            is_alive = await self.spec.alive() == ""
            # A probe has a timeout. If one takes longer, this process was suspended, and all
            # others may have been.
            if is_alive or time.monotonic() - began > _LONGEST_LOOK_S:
                answered = time.monotonic()

    async def _probe_until_ready(self) -> None:
        begun = time.monotonic()
        while reason := await self.spec.ready():
            self.unready_reason = reason
            await asyncio.sleep(_PROBE_EVERY_S)
        self._ready_since = time.monotonic()
        again = " again" if self._was_ready_once else ""
        self._was_ready_once = True
        self._print(f"{self.spec.name} ready{again} after {self._ready_since - begun:.1f} s")
        self.is_ready.set()

    def notice_end(self) -> None:
        """Check whether the child has ended (called when any child has)."""
        if self._child is not None and has_ended(self._child):
            self._ended.set()

    async def stop(self) -> None:
        """Terminate the process, wait `stop_grace_s`, then kill its whole group."""
        self._stopping = True
        if self._child is None:
            self.task.cancel()
            return
        signal_group(self._child, signal.SIGTERM)
        _, pending = await asyncio.wait([self.task], timeout=self.spec.stop_grace_s)
        if pending:
            self._print(
                f"{self.spec.name} did not stop in {self.spec.stop_grace_s:g} s; killing it"
            )
            self.kill()
            await asyncio.wait([self.task])

    def kill(self) -> None:
        """Kill the process and all it started, now."""
        self._stopping = True
        if self._child is not None:
            signal_group(self._child, signal.SIGKILL)

    def _log(self, text: str) -> None:
        self._lines.append(text)
        # Output during start and stop goes to the file alone, and is shown if a start fails.
        chatter = self._ready_since is None or self._stopping
        self._console.line(self.spec.name, text, only_file=chatter)

    def _print(self, text: str) -> None:
        self._console.line(NAME, text)


class Supervisor:
    """Runs the processes of `specs` until a stop signal.

    `while_stopping` runs in a thread while the first processes are stopped, when the portal still
    answers. `keep_open` are file descriptors (the instance's lock) that stay open until the last
    process is gone, even if this one is killed.
    """

    def __init__(
        self,
        specs: list[ProcessSpec],
        *,
        console: Console,
        cwd: Path,
        keep_open: tuple[int, ...] = (),
        while_stopping: Callable[[], object] | None = None,
    ) -> None:
        self._specs = specs
        self._while_stopping = while_stopping
        self._console = console
        self._cwd = cwd
        self._keep_open = keep_open
        self._keepers: list[_ProcessRunner] = []
        self._stop_requested = asyncio.Event()

    async def run(self, on_ready: Callable[[], None]) -> None:
        """Start everything, call `on_ready` once all are ready, return after a stop signal.

        Raises StartError when a process cannot be started at all, after stopping everything.
        """
        loop = asyncio.get_running_loop()
        self._guard = _Guard(self._specs, self._cwd, self._keep_open)
        self._keepers = [
            _ProcessRunner(spec, self._console, self._guard, self._cwd) for spec in self._specs
        ]
        loop.add_signal_handler(signal.SIGCHLD, self._on_child)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup remains in effect
                loop.add_signal_handler(number, self._on_stop_signal, number)
        try:
            await self._serve(on_ready)
        finally:
            self._stop_requested.set()
            await self._stop_all()
            loop.remove_signal_handler(signal.SIGCHLD)
            self._guard.dismiss()

    async def _serve(self, on_ready: Callable[[], None]) -> None:
        stop = asyncio.create_task(self._stop_requested.wait())
        ready = asyncio.create_task(self._wait_until_ready())
        lives = [keeper.task for keeper in self._keepers]
        try:
            await asyncio.wait([stop, ready, *lives], return_when=asyncio.FIRST_COMPLETED)
            if ready.done():
                await ready
                on_ready()
                await asyncio.wait([stop, *lives], return_when=asyncio.FIRST_COMPLETED)
            for life in lives:
                if life.done():
                    await life  # raises the exception it ended with
        finally:
            stop.cancel()
            ready.cancel()

    async def _wait_until_ready(self) -> None:
        try:
            async with asyncio.timeout(_FIRST_START_DEADLINE_S):
                for keeper in self._keepers:
                    if not keeper.spec.optional:
                        await keeper.is_ready.wait()
        except TimeoutError:
            reasons = "; ".join(
                f"{keeper.spec.name}: {keeper.unready_reason}"
                for keeper in self._keepers
                if not (keeper.is_ready.is_set() or keeper.spec.optional)
            )
            raise StartError(
                f"not ready after {_FIRST_START_DEADLINE_S:g} s ({reasons}); see the log above."
            ) from None
        await self._wait_for_optional()

    async def _wait_for_optional(self) -> None:
        late = [
            keeper
            for keeper in self._keepers
            if keeper.spec.awaited and not keeper.is_ready.is_set()
        ]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_OPTIONAL_PATIENCE_S):
                for keeper in late:
                    await keeper.is_ready.wait()
        for keeper in late:
            if not keeper.is_ready.is_set():
                self._console.line(
                    NAME, f"{keeper.spec.name} is not ready: {keeper.unready_reason}; continuing"
                )

    def _on_child(self) -> None:
        for keeper in self._keepers:
            keeper.notice_end()
        if not self._stop_requested.is_set() and self._guard.revive():
            self._console.line(NAME, "the guard process died; another one replaced it")

    def _on_stop_signal(self, number: signal.Signals) -> None:
        if self._stop_requested.is_set():
            self._console.line(NAME, "interrupted twice: killing all processes")
            for keeper in self._keepers:
                keeper.kill()
            return
        self._console.line(NAME, f"stopping ({number.name}); again to stop at once")
        self._stop_requested.set()

    async def _stop_all(self) -> None:
        first = [keeper for keeper in self._keepers if keeper.spec.uses_others]
        stops: list[Awaitable[object]] = [keeper.stop() for keeper in first]
        if self._while_stopping is not None:
            stops.append(asyncio.to_thread(self._while_stopping))
        await asyncio.gather(*stops)
        for group in (
            [k for k in self._keepers if not (k.spec.uses_others or k.spec.serves_others)],
            [keeper for keeper in self._keepers if keeper.spec.serves_others],
        ):
            await asyncio.gather(*(keeper.stop() for keeper in group))
