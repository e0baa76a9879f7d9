"""A process with imported libraries, from which tasks are forked in milliseconds.

It must stay single-threaded until the fork: no matrix product, no backward pass, no process group,
no CUDA call. It serves one agent over one socket and ends when that socket closes. For each launch
it forks a shim, which forks the ranks. Neither depends on this process afterwards.

A launch holds a project's secrets and comes as a descriptor that only the fork reads. This process
never does, because the tasks of every other project inherit all of its memory.
"""

import ctypes
import gc
import importlib
import json
import multiprocessing.process
import os
import random
import re
import signal
import socket
import struct
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from workers.launcher.handover import read_all, receive_descriptor
from workers.launcher.launch import Launch
from workers.launcher.platform_programs import PLATFORM_PROGRAMS, PlatformProgram
from workers.launcher.program import become, register_stack_signal
from workers.launcher.ranks import InRank
from workers.launcher.shim import Shim
from workers.launcher.usage import memory_of

_LENGTH: Final = struct.Struct("!I")
_OPENBLAS_SETTERS: Final = (
    *("scipy_openblas_set_num_threads64_", "scipy_openblas_set_num_threads"),
    *("openblas_set_num_threads64_", "openblas_set_num_threads"),
)


class NotForkable(Exception):
    """This process must not be forked. The message gives the reason."""


@dataclass(frozen=True)
class WarmReport:
    """Report of a warm process when it is ready."""

    pid: int
    memory_bytes: int
    modules: int


def send_message(door: socket.socket, body: dict[str, Any]) -> None:
    """Send one JSON object, with its length in front."""
    data = json.dumps(body).encode()
    door.sendall(_LENGTH.pack(len(data)) + data)


class Warm:
    """Imported modules of one platform program, not yet used.

    `root` is the folder of the platform's code and `sdk` that of the SDK. Only imports of programs
    of our own see them.
    """

    def __init__(self, program: PlatformProgram, root: str, sdk: str) -> None:
        if program.module:
            sys.path[:0] = [root]
            sys.path.append(sdk)
        for name in program.imports:
            with suppress(ImportError):
                importlib.import_module(name)
        sys.path[:] = [entry for entry in sys.path if entry not in (root, sdk)]
        self._torch: Any = sys.modules.get("torch")
        if program.first_optimizer:
            # Without torch this ends the process: an environment like that is as fast cold.
            torch: Any = sys.modules["torch"]
            torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))])

    def serve(self, listening: int, address: str, port: int) -> object:
        """Serve a store on a listening socket.

        This starts threads, so never call it before a fork.
        """
        if self._torch is None:
            return None
        store: object = self._torch.distributed.TCPStore(
            address, port, None, True, wait_for_workers=False, master_listen_fd=listening
        )
        return store

    def reset_after_fork(self, env: dict[str, str]) -> None:
        """In a rank: undo what a process shares with its siblings by being forked."""
        os.environ.clear()
        os.environ.update(env)
        _reset_standard_library()
        if self._torch is not None:
            self._torch.default_generator.seed()
        numpy: Any = sys.modules.get("numpy")
        if numpy is not None:
            numpy.random.seed()
        threads = env.get("OMP_NUM_THREADS", "")
        if threads.isdigit() and int(threads) > 1:
            if self._torch is not None:
                self._torch.set_num_threads(int(threads))
            _set_openblas_threads(int(threads))


def _reset_standard_library() -> None:
    random.seed()
    tempfile.tempdir = None
    process: Any = multiprocessing.process
    process.ORIGINAL_DIR = os.getcwd()  # noqa: PTH109 - must be a string
    config = process.current_process()._config  # noqa: SLF001
    config["authkey"] = process.AuthenticationString(os.urandom(32))


def _set_openblas_threads(count: int) -> None:
    """Set the thread count of every loaded copy of OpenBLAS, which reads it only when loaded."""
    libraries = set(re.findall(r"(/\S*openblas\S*\.so\S*)", Path("/proc/self/maps").read_text()))
    for path in libraries:
        with suppress(OSError):
            library = ctypes.CDLL(path)
            for name in _OPENBLAS_SETTERS:
                function = getattr(library, name, None)
                if function is not None:
                    function(count)
                    break


def check_forkable() -> None:
    """Raise NotForkable unless a fork of this process is safe."""
    threads = len(list(Path("/proc/self/task").iterdir()))
    if threads != 1:
        raise NotForkable(f"it runs {threads} threads; a fork would keep one of them")
    torch: ModuleType | None = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        raise NotForkable("CUDA is initialised; a fork could not use it")


def serve(door: socket.socket, flavour: Warm) -> InRank | None:
    """Fork a shim for each launch that comes in. Returns in a rank, or at the end in ourselves."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps our shims
    while (descriptor := receive_descriptor(door)) is not None:
        try:
            check_forkable()
        except NotForkable as error:
            send_message(door, {"error": str(error)})
            return None
        pid = os.fork()
        if pid == 0:
            door.close()
            in_rank = _run_shim(Launch.from_json(read_all(descriptor)), flavour)
            if in_rank is not None:
                return in_rank
            os._exit(0)
        os.close(descriptor)
        send_message(door, {"pid": pid})
    return None


def _run_shim(launch: Launch, flavour: Warm) -> InRank | None:
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    log = os.open(launch.folder.shim_log, flags, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    return Shim(launch, flavour).run()


def main() -> None:
    """Serve an agent: `python -c BOOT ROOT DESCRIPTOR FLAVOUR SDK`. DESCRIPTOR is its socket."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    door = socket.socket(fileno=int(sys.argv[2]))
    sys.path[:] = [entry for entry in sys.path if entry != sys.argv[1]]
    root, name, sdk = sys.argv[1], sys.argv[3], sys.argv[4]
    flavour = Warm(PLATFORM_PROGRAMS[name], root, sdk)
    check_forkable()
    gc.collect()
    gc.freeze()
    report = {
        "pid": os.getpid(),
        "memory_bytes": memory_of(os.getpid()),
        "modules": len(sys.modules),
    }
    send_message(door, report)
    value = serve(door, flavour)
    if value is not None:
        register_stack_signal()
        flavour.reset_after_fork(value.env)
        become(value.program)
