"""Supervises the ranks of one task: starts them, stores their output, ends them, logs events.

One shim per task, started by the agent and independent of it from then on. It is single-threaded,
so that ranks can be forked from it, and it needs nothing but the standard library. Its whole state
is in the task's state folder (`launch.StateFolder`), so a later agent can adopt the task.
"""

import json
import os
import selectors
import signal
import sys
import time
import traceback
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Final

from workers.launcher import exit_reasons
from workers.launcher.atomic_files import create_once
from workers.launcher.cgroup import container_cgroup
from workers.launcher.confinement import adopt_orphans, confine
from workers.launcher.connections import RankConnections
from workers.launcher.disk_watch import DiskWatch
from workers.launcher.file_keeper import FileKeeper, log_lines
from workers.launcher.gang import GangPorts, write_host_file
from workers.launcher.journal import ENDED, FAILED, Journal
from workers.launcher.kept_task import KeptTask, log_line, obstacle_to_keeping
from workers.launcher.launch import Gang, Launch
from workers.launcher.lease import Lease
from workers.launcher.processes import ProcessMark, living_descendants, uptime_s
from workers.launcher.progress import RankProgress
from workers.launcher.rank_env import rank_environment, without_contract
from workers.launcher.rank_store import RankStore, StoreHost
from workers.launcher.ranks import (
    InRank,
    Rank,
    confinement_of_task,
    open_listener,
    program_of,
    start_rank,
    view_of,
)
from workers.launcher.sandbox import Sandbox
from workers.launcher.shells import TaskShells
from workers.launcher.shutdown import Shutdown, has_descendants, offer_to_oom_killer
from workers.launcher.task_dashboard import TaskDashboard
from workers.launcher.task_end import drain, end_report, has_failed, verdict_of
from workers.launcher.task_socket import Failure, TaskSocket, notify_agent
from workers.launcher.term_signal import TermSignal
from workers.launcher.terminal import Terminal, start_terminal
from workers.launcher.usage import SAMPLE_EVERY_S, UsageMeter, append_sample

_TICK_S: Final = 1.0
_BELL_EVERY_S: Final = 0.2
_REAP_PATIENCE_S: Final = 5.0
_LOOK_EVERY_S: Final = 0.1
_JOIN_POLL_S: Final = 0.01
_NOTE_WAIT_AFTER_S: Final = 1.0


class Shim:
    """Supervises one task from its first process to its last line."""

    def __init__(self, launch: Launch, host: StoreHost | None = None) -> None:
        if launch.in_container:
            launch = replace(launch, cgroup=container_cgroup())
        self._launch = launch
        self._store = None if host is None else RankStore(host)
        self._journal = Journal(launch.folder.journal)
        self._ranks: list[Rank] = []
        self._ending = Shutdown(launch)
        own_ipc = launch.confined.level == "namespaces"
        self._usage = UsageMeter(launch.cgroup, own_ipc=own_ipc)
        self._disk = DiskWatch(launch, self._usage)
        self._lease = Lease(Path(launch.shared_dir))
        self._selector = selectors.DefaultSelector()
        self._ports: GangPorts | None = None
        now = uptime_s()
        self._active_at_s = self._sampled_at_s = now
        self._notified_at_s = 0.0
        self._progress = RankProgress(lambda fields: self._note("progress", **fields))
        self._connections = RankConnections(launch, partial(self._note, "progress"))
        self._polled_at_s = 0.0
        self._term = TermSignal(launch)
        self._output_waits = False
        self._contact: TaskSocket | None = None
        self._sandbox: Sandbox | None = None
        self._shells: TaskShells | None = None
        self._dashboard = TaskDashboard(launch, self._selector)
        self._variables: list[dict[str, str]] = []
        self._keeper = FileKeeper(launch)
        self._is_kept = False

    def run(self) -> InRank | None:
        """Supervise to the end. In a rank forked from a warm process: what it must become."""
        try:
            return self._run()
        except Exception as error:  # noqa: BLE001 - ranks must not outlive their shim
            traceback.print_exc()
            self._ending.kill_tree()
            self._note(
                ENDED,
                reason=exit_reasons.START_FAILED,
                message=f"The task could not be supervised: {type(error).__name__}: {error}",
            )
        return None

    def _run(self) -> InRank | None:
        if not self._claim():
            return None
        adopt_orphans()
        waking, wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._term.receive)
        confined = self._launch.confined
        self._contact = TaskSocket(Path(self._launch.contact_path))
        if confined.uid is not None and confined.gid is not None:
            self._contact.grant_access(confined.uid, confined.gid)
        shell_path = self._launch.shell_path
        self._shells = TaskShells(shell_path, self._selector, self._start_terminal)
        self._keeper.shells = self._shells.processes
        self._dashboard.listen()
        spare_us = offer_to_oom_killer()
        in_rank = self._start()
        if in_rank is not None:
            self._release_descriptors()
            return in_rank
        spare_us()
        if not self._ranks:
            self._end_unstarted()
            return None
        self._disk.prepare()
        self._selector.register(waking, selectors.EVENT_READ, None)
        self._selector.register(self._contact, selectors.EVENT_READ, self._contact)
        for rank in self._ranks:
            self._selector.register(rank.output, selectors.EVENT_READ, rank)
        while any(rank.running for rank in self._ranks):
            self._run_once(waking)
        if self._term.has_ended(self._ranks):
            self._ending.ended_by_engine()
        self._finish(waking)
        return None

    def _claim(self) -> bool:
        mark = ProcessMark.of(os.getpid())
        if mark is None or self._journal.has_ended():
            return False
        if not create_once(self._launch.folder.claim, json.dumps(asdict(mark))):
            return False
        # An agent that gives up on this shim writes the end first, and then checks for the claim.
        return not self._journal.has_ended()

    def _start(self) -> InRank | None:
        launch = self._launch
        program = program_of(launch)
        warm = self._store is not None and program.in_place
        # The platform's own programs have no ranks to connect, and clusters connect them otherwise.
        is_plain = program.kind != "own" and not program.framework
        serves_store = warm and is_plain and not program.brings_own_launcher
        serves_store = serves_store and launch.first_rank == 0
        if self._store is not None and serves_store and launch.confined.level == "namespaces":
            self._store.prepare()
        sandbox = None
        listener = open_listener(launch, program)
        if launch.confined.level == "shared":
            # The folder of listeners is outside, so the task cannot put another in its place.
            confine(confinement_of_task(launch))
        if launch.confined.level == "namespaces":
            sandbox = Sandbox.create(
                view_of(launch), join=launch.cgroup.join, services=launch.confined.services
            )
            self._ending.init = sandbox.init
        self._keeper.spared = set(living_descendants(os.getpid()))
        gang = self._meet(GangPorts(launch, serves_store=serves_store))
        if gang is None:
            return None
        write_host_file(launch, gang)
        run = partial(start_rank, launch, program, forked=warm, sandbox=sandbox, listener=listener)
        for local_rank in range(launch.procs):
            env = rank_environment(launch, local_rank, gang)
            if program.brings_own_launcher:
                env = without_contract(env)
            self._variables.append(env)
            started = run(env=env, rank=launch.first_rank + local_rank)
            if isinstance(started, InRank):
                return started
            self._ranks.append(started)
        if listener is not None:
            listener.close()
        # Files are kept, shells and dashboards started, where the ranks ran.
        self._sandbox = sandbox
        self._dashboard.begin(self._variables[0], sandbox)
        listening = None if self._ports is None else self._ports.take_store()
        if listening is not None and self._store is not None:
            self._store.serve(listening, gang.meeting)
        self._connections.begin(gang)
        self._note("running", warm=warm, message=launch.start_message(warm=warm))
        return None

    def _meet(self, ports: GangPorts) -> Gang | None:
        """Return the addresses of all ranks once every task has reported its own.

        Returns None if the task has to end before that.
        """
        launch = self._launch
        self._ports = ports
        if not launch.is_gang:
            return ports.alone()
        meeting = None if ports.meeting is None else asdict(ports.meeting)
        self._note("rendezvous", rendezvous=meeting, member=asdict(ports.member))
        began_s, is_noted = uptime_s(), False
        while (gang := launch.folder.known_gang()) is None:
            waited_s = uptime_s() - began_s
            time.sleep(_JOIN_POLL_S if waited_s < _NOTE_WAIT_AFTER_S else _LOOK_EVERY_S)
            # Waiting for other tasks is no hang.
            self._active_at_s = uptime_s()
            self._obey()
            self._watch()
            if self._ending.has_begun:
                return None
            if not is_noted and waited_s >= _NOTE_WAIT_AFTER_S:
                tasks = -(-launch.world_size // launch.procs)
                self._note("starting", message=f"Waiting until all {tasks} tasks are ready.")
                is_noted = True
        return gang

    def _store_pid(self) -> int:
        return os.getpid() if self._store is None else self._store.pid

    def _start_terminal(self, rank: int, rows: int, columns: int) -> Terminal:
        """Start a shell with the variables of a rank. Raises OSError."""
        local_rank = rank - self._launch.first_rank
        if not 0 <= local_rank < len(self._variables):
            raise OSError(0, "The ranks have not started yet.")
        env = {**self._variables[local_rank], "TERM": "xterm-256color"}
        return start_terminal(self._launch, env, sandbox=self._sandbox, rows=rows, columns=columns)

    def _release_descriptors(self) -> None:
        """In a forked rank: no object may close, when it is collected, a number that is reused."""
        held = (self._selector, self._contact, self._ports, self._store, self._shells)
        for thing in (*held, self._dashboard):
            with suppress(OSError):
                if isinstance(thing, TaskSocket | GangPorts | TaskShells | TaskDashboard):
                    thing.release()
                elif thing is not None:
                    thing.close()

    def _run_once(self, waking: int) -> None:
        self._poll(waking, self._patience_s())
        if uptime_s() - self._polled_at_s >= _LOOK_EVERY_S:
            self._polled_at_s = uptime_s()
            self._obey()
            self._watch()
            if self._shells is not None:
                self._shells.step()
            self._dashboard.step()
            self._progress.flush_due()
            self._connections.step([rank.pid for rank in self._ranks], self._store_pid())
        self._disk.step()
        if self._disk.is_exceeded:
            self._ending.over_disk(
                exit_reasons.over_disk(self._disk.over_bytes, self._launch.disk_bytes)
            )
        if self._ending.is_due() and not (self._needs_sandbox and self._keeper.end_ranks()):
            self._ending.kill_tree()
        self._notify_of_output()

    def _poll(self, waking: int, patience_s: float) -> None:
        """Wait for something to happen, and process it."""
        for key, mask in self._selector.select(patience_s):
            if callable(key.data):
                key.data(mask)
            elif key.data is None:
                self._polled_at_s = 0.0
                with suppress(BlockingIOError):
                    os.read(waking, 4096)
            elif isinstance(key.data, Rank):
                self._drain(key.data)
            else:
                self._process_messages(key.data)
        self._collect()

    def _patience_s(self) -> float:
        waits = [_TICK_S, self._disk.wait_s()]
        due = self._ending.wait_s()
        if due is not None:
            waits.append(due)
        if self._output_waits:
            waits.append(max(0.0, self._notified_at_s + _BELL_EVERY_S - uptime_s()))
        return min(waits)

    def _drain(self, rank: Rank) -> None:
        if rank.drain():
            self._active_at_s = uptime_s()
            self._output_waits = True
        if not rank.output_open:
            self._selector.unregister(rank.output)

    def _process_messages(self, contact: TaskSocket) -> None:
        for message in contact.receive():
            if self._is_kept:
                continue  # of a script that somebody runs in a shell
            if not isinstance(message, Failure):
                self._active_at_s = uptime_s()
                self._progress.process(message)
                continue
            for rank in self._ranks:
                if rank.rank == message.rank and rank.failure is None:
                    rank.failure = message
                    self._ending.failing(self._ranks, rank)

    def _collect(self) -> None:
        """Reap ended children: ranks, and orphans that were reparented to us."""
        failed = False
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if ended is None:
                    break
                if self._contact is not None:
                    # Read its last messages while the kernel still knows the sender's pid.
                    self._process_messages(self._contact)
                pid, status, usage = os.wait4(ended.si_pid, os.WNOHANG)
            except ChildProcessError:
                break
            self._usage.reaped(usage)
            code = os.waitstatus_to_exitcode(status)
            if self._shells is not None:
                self._shells.exited(pid, code)
            self._dashboard.exited(pid)
            for rank in self._ranks:
                if rank.pid == pid and rank.running:
                    rank.ended_at_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
                    rank.exit_code, rank.signal = (code, None) if code >= 0 else (None, -code)
                    failed = failed or code != 0
        if failed:
            self._ending.peer_failed(self._ranks)

    def _obey(self) -> None:
        request = self._launch.folder.stop_request() or self._term.request()
        if request is not None:
            self._term.is_new = False
            self._ending.stop(self._ranks, request)

    def _watch(self) -> None:
        """The lease, the hang clock and the meter."""
        now = uptime_s()
        left_s = None if self._launch.keep_on_fence else self._lease.remaining_s()
        if left_s is not None and left_s <= 0 and self._ending.fenced_after_s is None:
            self._ending.fence(after_s=-left_s)
        limit_s = self._launch.hang_limit_s
        idle_s = now - self._active_at_s
        if limit_s is not None and idle_s >= limit_s and not self._ending.has_begun:
            self._ending.end_hung(self._ranks, idle_s)
        enforced = self._launch.cgroup.memory is not None
        every_s = SAMPLE_EVERY_S if enforced else _TICK_S
        if now - self._sampled_at_s >= every_s:
            self._sampled_at_s = now
            sample = self._usage.sample()
            append_sample(self._launch.folder.usage, sample)
            if not enforced and sample.memory_bytes > self._launch.memory_bytes:
                self._ending.over_memory(sample.memory_bytes)

    def _notify_of_output(self) -> None:
        if self._output_waits and uptime_s() - self._notified_at_s >= _BELL_EVERY_S:
            self._output_waits = False
            self._notify_agent()

    def _notify_agent(self) -> None:
        self._notified_at_s = uptime_s()
        if self._launch.bell_path:
            notify_agent(Path(self._launch.bell_path))

    def _note(self, kind: str, **fields: object) -> None:
        self._journal.append(kind, **fields)
        self._notify_agent()

    def _end_unstarted(self) -> None:
        """End before any rank was started: the task was stopped while it waited for others."""
        self._ending.kill_tree()
        if self._shells is not None:
            self._shells.close()
        self._dashboard.close()
        if self._contact is not None:
            self._contact.close()
        verdict = verdict_of(self._launch, self._ranks, self._ending)
        self._note(ENDED, reason=verdict.reason, message=verdict.message)

    @property
    def _may_be_kept(self) -> bool:
        """True if the task stays for shells when it ends badly now, by itself or with its gang."""
        ending = self._ending
        is_stopped = ending.stop_reason is not None and not ending.keeps
        is_ended = is_stopped or ending.fenced_after_s is not None
        return self._launch.keep_failed_s > 0 and not is_ended and ending.disk_over is None

    @property
    def _needs_sandbox(self) -> bool:
        """True if files are kept, or the task is: its sandbox outlives ranks that are killed."""
        keeps_files = self._keeper.is_on and self._ending.fenced_after_s is None
        return keeps_files or self._may_be_kept

    def _finish(self, waking: int) -> None:
        """Keep files and a failed task, leave no process behind, and write how it ended."""
        self._dashboard.close()
        if self._may_be_kept and (has_failed(self._ranks) or self._ending.keeps):
            drain(self._ranks)
            reason = verdict_of(self._launch, self._ranks, self._ending).reason
            obstacle = obstacle_to_keeping(reason, self._ending.init)
            self._is_kept = not obstacle
            if obstacle:
                self._log(f"[slipway] The failed task is not kept: {obstacle}.\n")
        if self._shells is not None and not self._is_kept:
            self._shells.close()
        if not has_failed(self._ranks):
            self._connections.finish(self._store_pid())
        self._keep_files()
        end = self._stay(waking) if self._is_kept else None
        if self._sandbox is not None:
            self._sandbox.close()
        self._ending.kill_tree()
        deadline = time.monotonic() + _REAP_PATIENCE_S
        while has_descendants() and time.monotonic() < deadline:
            self._collect()
            time.sleep(0.001)
        end = end or self._end()
        if self._contact is not None:
            self._contact.close()
        append_sample(self._launch.folder.usage, self._usage.sample())
        self._note(ENDED, **end)

    def _stay(self, waking: int) -> dict[str, object]:
        """Report the failure, serve shells until the time is over, and return the end."""
        shells = self._shells
        assert shells is not None  # noqa: S101 - they exist before the ranks
        self._keeper.end_ranks()
        self._collect()
        self._log(log_line(self._launch))
        for rank in self._ranks:
            with suppress(KeyError):
                self._selector.unregister(rank.output)
        end = self._end()
        self._note(FAILED, **end)
        kept = KeptTask(self._launch, self._lease, self._disk, self._usage)

        def poll(patience_s: float) -> None:
            self._poll(waking, patience_s)
            shells.step()

        end["kept_end"] = kept.stay(poll, lambda: self._term.is_new)
        shells.close()
        return end

    def _end(self) -> dict[str, object]:
        """Close the logs of the ranks, and return how the task has ended."""
        drain(self._ranks)
        for rank in self._ranks:
            rank.close()
        if self._contact is not None:
            self._process_messages(self._contact)
        end = end_report(self._launch, self._ranks, self._ending, self._usage)
        self._progress.finish()
        return end

    def _keep_files(self) -> None:
        """Upload what the ranks wrote. Their processes are gone, and the sandbox is still there."""
        if not self._keeper.is_on or self._ending.fenced_after_s is not None:
            return
        stop_s = self._ending.wait_s() if self._ending.stop_reason is not None else None
        failed = has_failed(self._ranks)
        report = self._keeper.run(
            self._sandbox, lease=self._lease, killed_after_s=stop_s, failed=failed, log=self._log
        )
        if lines := log_lines(report):
            self._log(lines)
            self._note("progress", files=report)

    def _log(self, lines: str) -> None:
        first = self._ranks[0]
        while first.output_open and first.drain():
            pass
        first.log.append(lines.encode())


def main() -> None:
    """Entry of a shim that starts cold: the launch comes as JSON on standard input."""
    Shim(Launch.from_json(sys.stdin.buffer.read())).run()
