"""Starts the processes of one task: each in a session of its own, with nothing of ours in it."""

import os
import resource
import signal
import socket
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fcntl import fcntl
from pathlib import Path
from typing import Final

from workers.launcher.cgroup import MAX_PROCESSES
from workers.launcher.confinement import Confinement, confine, die_with_parent
from workers.launcher.exit_reasons import RankEnding
from workers.launcher.launch import Launch
from workers.launcher.logs import LogWriter
from workers.launcher.mounts import View, graphics_devices
from workers.launcher.network import listen_on_free_port, listen_on_path
from workers.launcher.platform_programs import READABLE_PACKAGES
from workers.launcher.program import STACK_SIGNAL, Program, plan
from workers.launcher.rank_env import LISTENER_VARIABLE
from workers.launcher.sandbox import Sandbox, drop_privileges
from workers.launcher.task_socket import Failure

_PIPE_BYTES: Final = 1024 * 1024
_F_SETPIPE_SZ: Final = 1031
_TAIL_BYTES: Final = 16 * 1024
_MEMORY_SLACK_BYTES: Final = 1024**3
_LAST_DESCRIPTOR: Final = 1 << 20
_LEAST_SHM_BYTES: Final = 64 << 20
_STDERR: Final = 2
_MOST_OPEN_FILES: Final = 1 << 16
NOT_STARTED: Final = 127


@dataclass
class Rank:
    """One process of the task, seen from the shim."""

    rank: int
    pid: int
    output: int
    log: LogWriter
    shows_stack: bool
    tail: bytes = b""
    exit_code: int | None = None
    signal: int | None = None
    ended_at_ns: int | None = None
    failure: Failure | None = None
    output_open: bool = field(default=True)

    @property
    def running(self) -> bool:
        """True until the process has been reaped."""
        return self.ended_at_ns is None

    def drain(self, limit: int = _PIPE_BYTES) -> int:
        """Move output of the rank from its pipe to its log and return the number of bytes."""
        try:
            data = os.read(self.output, limit)
        except BlockingIOError:
            return 0
        except OSError:
            data = b""
        if not data:
            self.output_open = False
            return 0
        self.log.append(data)
        self.tail = data[-_TAIL_BYTES:] if len(data) >= _TAIL_BYTES else self.tail + data
        self.tail = self.tail[-_TAIL_BYTES:]
        return len(data)

    def tail_text(self) -> str:
        """The last output as text that any database takes."""
        return self.tail.decode("utf-8", errors="replace").replace("\0", "\ufffd")

    def ending(self) -> RankEnding:
        """Return how the process ended, for the verdict on the task."""
        return RankEnding(
            rank=self.rank,
            exit_code=self.exit_code,
            signal=self.signal,
            failure=self.failure,
            seen_at_ns=self.ended_at_ns or 0,
        )

    def close(self) -> None:
        """Close the pipe and the log."""
        os.close(self.output)
        self.log.close()


def program_of(launch: Launch) -> Program:
    """Return the program of the ranks of a task."""
    program = plan(
        launch.argv,
        python=launch.python,
        root=launch.root,
        work_dir=launch.work_dir,
        sdk_dir=launch.sdk_dir,
    )
    if not launch.framework:
        return program
    cpus = max(1, launch.cpu_millis // 1000)
    return replace(program, framework=launch.framework, cpus=cpus, memory_bytes=launch.memory_bytes)


def open_listener(launch: Launch, program: Program) -> socket.socket | None:
    """Open the socket of a server that clients outside the sandbox's network will reach.

    On a node that cannot be dialled it is a Unix socket, for the agent. User code gets it open and
    cannot put another in its place.
    """
    if launch.listen_path and program.kind == "own":
        return listen_on_path(launch.listen_path)
    if not launch.confined.offline or program.kind != "own":
        return None
    is_local = launch.address in ("", "127.0.0.1", "localhost")
    return listen_on_free_port("127.0.0.1" if is_local else "0.0.0.0")  # noqa: S104


@dataclass(frozen=True)
class InRank:
    """Answer of `start_rank` in the new process of a warm start: what it must become."""

    program: Program
    env: dict[str, str]


def start_rank(
    launch: Launch,
    program: Program,
    env: dict[str, str],
    *,
    rank: int,
    forked: bool,
    sandbox: Sandbox | None,
    listener: socket.socket | None = None,
) -> Rank | InRank:
    """Start one rank. Returns twice when `forked`: in the shim a Rank, in the rank an InRank.

    A `listener` is handed to the rank, which finds its number in LISTENER_VARIABLE.
    """
    reading, writing = os.pipe2(os.O_CLOEXEC)
    with suppress(OSError):  # pipe memory is limited per user
        fcntl(reading, _F_SETPIPE_SZ, _PIPE_BYTES)
    os.set_blocking(reading, False)
    shim = os.getpid()
    pid = os.fork()
    if pid == 0:
        kept = None
        if listener is not None:
            # It keeps its number: objects of the shim close their own ones when they are released.
            kept = listener.detach()
            env = {**env, LISTENER_VARIABLE: str(kept)}
        enter_task(launch, writing, shim, forked=forked, sandbox=sandbox, kept=kept)
        if forked:
            return InRank(program, env)
        _replace(program, env)
    os.close(writing)
    log = LogWriter(launch.folder.logs(rank), bound_bytes=launch.log_bound_bytes)
    return Rank(rank, pid, reading, log, shows_stack=program.in_place)


@dataclass(frozen=True)
class Helper:
    """A process of ours with the rights of a rank. `output` is the reading end of a pipe."""

    pid: int
    output: int


def start_helper(
    launch: Launch,
    program: Program,
    env: dict[str, str],
    *,
    sandbox: Sandbox | None,
    listener: socket.socket | None = None,
) -> Helper:
    """Start a program of ours where a rank would run, with a rank's rights. Raises OSError.

    A `listener` is handed to it, which finds its number in LISTENER_VARIABLE.
    """
    reading, writing = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(reading, False)
    shim = os.getpid()
    try:
        pid = os.fork()
    except OSError:
        os.close(reading)
        os.close(writing)
        raise
    if pid == 0:
        kept = None
        if listener is not None:
            kept = listener.detach()
            env = {**env, LISTENER_VARIABLE: str(kept)}
        enter_task(launch, writing, shim, forked=False, sandbox=sandbox, kept=kept)
        _replace(program, env)
    os.close(writing)
    return Helper(pid, reading)


def enter_task(
    launch: Launch,
    output: int,
    shim: int,
    *,
    forked: bool,
    sandbox: Sandbox | None,
    kept: int | None,
) -> None:
    """Turn the new fork into a rank: session, limits, streams, confinement. Exit on failure.

    `kept` is a descriptor that the rank has besides its streams.
    """
    confined = launch.confined
    try:
        os.setsid()
        _reset_signals()
        launch.cgroup.join()
        _limit(launch)
        groups = _device_groups() if launch.gpus else ()
        if sandbox is not None:
            sandbox.enter()
        os.chdir(launch.work_dir)
        _redirect(output)
        if kept is not None:
            os.set_inheritable(kept, True)
        if forked:
            last_kept = _STDERR if kept is None else kept
            os.closerange(_STDERR + 1, last_kept)
            os.closerange(last_kept + 1, _LAST_DESCRIPTOR)
        if confined.level in ("users", "shared"):
            confine(confinement_of(launch))
            # Users of other projects see the same /dev/shm.
            os.umask(0o077)
        elif confined.level == "container":
            confine(confinement_in_container(launch))
        drop_privileges(uid=confined.uid, gid=confined.gid, groups=groups)
        if not die_with_parent(shim, signal.SIGKILL, parent_is_outside=sandbox is not None):
            os._exit(NOT_STARTED)
    except Exception as error:  # noqa: BLE001 - this process must not continue as a second shim
        os.write(output, f"[slipway] the rank could not be set up: {error}\n".encode())
        os._exit(NOT_STARTED)


def confinement_of(launch: Launch) -> Confinement:
    """Return what a rank may access: its folders to write, the system and environment to read."""
    ours = (str(Path(launch.root, "workers", name).resolve()) for name in READABLE_PACKAGES)
    places = [launch.root, *ours, *launch.confined.readable]
    if launch.sdk_dir is not None:
        places.extend((launch.sdk_dir, str(Path(launch.sdk_dir, "slipway").resolve())))
    some = tuple(path for path in (launch.cache_dir, launch.personal_dir) if path)
    return Confinement(
        writable=(launch.work_dir, launch.home_dir, launch.tmp_dir, launch.persistent_dir, *some),
        readable=tuple(places),
    )


def confinement_of_task(launch: Launch) -> Confinement:
    """Return what a whole task may access with its shim. Each rank restricts itself further."""
    ranks = confinement_of(launch)
    writable = (*ranks.writable, launch.state_dir, *launch.cgroup.folders)
    contact = str(Path(launch.contact_path).parent)
    return Confinement((*writable, contact), (*ranks.readable, launch.shared_dir), outermost=True)


def confinement_in_container(launch: Launch) -> Confinement:
    """Places of a rank in a container: its image as the engine mounts it, and its own folders.

    The state folder stays closed. The shim writes it as the same user, and the agent reads it.
    """
    own = confinement_of(launch)
    ours = Path(launch.state_dir).parts[1]
    image = (entry.path for entry in os.scandir("/") if entry.name != ours)
    return Confinement((*own.writable, *image), own.readable, listable=("/",))


def view_of(launch: Launch) -> View:
    """Return the sandbox view of a task: its confinement and a private /tmp, /dev/shm and /etc."""
    confinement = confinement_of(launch)
    confined = launch.confined
    return View(
        writable=confinement.writable,
        # Ranks speak to their shim by the socket in this folder.
        readable=(*confinement.readable, str(Path(launch.contact_path).parent)),
        hidden=confined.hidden,
        tmp=launch.tmp_dir,
        home=launch.home_dir,
        uid=os.getuid() if confined.uid is None else confined.uid,
        gid=os.getgid() if confined.gid is None else confined.gid,
        shm_bytes=_shm_bytes(launch),
        gpus=bool(launch.gpus),
        offline=confined.offline,
    )


def _shm_bytes(launch: Launch) -> int:
    return max(launch.memory_bytes // 2, _LEAST_SHM_BYTES)


def _device_groups() -> tuple[int, ...]:
    """Return the groups with access to the graphics cards, if that is restricted."""
    groups = set()
    for path in graphics_devices():
        with suppress(OSError):
            groups.add(Path(path).stat().st_gid)
            groups.update(entry.stat().st_gid for entry in os.scandir(path))
    return tuple(sorted(groups - {0}))


def _reset_signals() -> None:
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if signal.getsignal(number) not in (signal.SIG_DFL, signal.SIG_IGN, None):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Ignored until a script's own process registers a handler: by default the signal would end
    # the process.
    signal.signal(STACK_SIGNAL, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _limit(launch: Launch) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = min(hard, _MOST_OPEN_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if launch.disk_bytes:
        # The limit also applies to files in shared memory, which count as memory, not disk.
        most = max(launch.disk_bytes, _shm_bytes(launch))
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        most = most if hard == resource.RLIM_INFINITY else min(hard, most)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    # The engine counts the processes of a container. The kernel would count those of all containers
    # with the same user together.
    if not launch.cgroup.limits_processes and not launch.in_container:
        # Counted by user, and in a user namespace apart from the same user outside.
        _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
        most = MAX_PROCESSES if hard == resource.RLIM_INFINITY else min(hard, MAX_PROCESSES)
        resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
    if launch.cgroup.memory is None and not launch.gpus:
        # Not RLIMIT_AS, because torch maps far more than it uses. With a GPU even RLIMIT_DATA would
        # be too low, so only the shim limits memory then.
        most = launch.memory_bytes + _MEMORY_SLACK_BYTES
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def _redirect(output: int) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(output, 1)
    os.dup2(output, 2)


def _replace(program: Program, env: dict[str, str]) -> None:
    command = program.command_line()
    if not program.in_place:
        path = env.get("PYTHONPATH", "")
        path = f"{path}{os.pathsep}{program.additions}" if path else program.additions
        env = {"PYTHONUNBUFFERED": "1", **env, "PYTHONPATH": path}
    # The interpreter ignores SIGPIPE; a fresh program expects the default.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        os.execve(command[0], command, env)  # noqa: S606 - no shell is wanted
    except Exception as error:  # noqa: BLE001 - as above
        os.write(2, f"[slipway] {command[0]} could not be started: {error}\n".encode())
        os._exit(NOT_STARTED)
