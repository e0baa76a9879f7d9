"""The boundary around one task: namespaces held by a small first process, and how ranks enter them.

A shim that is not root first enters a user namespace, where it may do what follows. It then leaves
the PID and IPC namespaces of the machine, so whatever it forks next lives in new ones. The first
such process (`init`, PID 1 inside) builds the file system, collects orphans and takes everything
inside with it when it ends. Ranks are children of the shim all the same: it waits for them as ever.
Nothing here needs a set-user-ID helper, a container engine or root.
"""

import array
import json
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from workers.launcher.cgroup import MAX_PROCESSES
from workers.launcher.confinement import (
    die_with_parent,
    drop_bounding_set,
    drop_capabilities,
    forbid_new_privileges,
    scope_signals_and_sockets,
)
from workers.launcher.mounts import View, build_root
from workers.launcher.network import close_network
from workers.launcher.seccomp import install_filter
from workers.launcher.service_forwarder import Forwarder, Service, hosts_lines, plan_forwards
from workers.launcher.syscalls import (
    CLONE_NEWIPC,
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUSER,
    failure,
    prctl,
    setns,
    unshare,
)

_PR_SET_DUMPABLE: Final = 4
_LAST_DESCRIPTOR: Final = 1 << 20
_READY: Final = b"+"
_MESSAGE_BYTES: Final = 4096


class Sandbox:
    """Namespaces of one task, as the shim that made them holds them."""

    def __init__(self, mounts: int, init: int) -> None:
        self._mounts = mounts
        self.init = init

    @classmethod
    def create(
        cls,
        view: View,
        *,
        join: Callable[[], None] = lambda: None,
        services: Sequence[Service] = (),
    ) -> "Sandbox":
        """Create the namespaces for the caller's next children. Raises OSError, ValueError.

        `join` runs first in the init process, for example to join control groups. The caller must
        be single-threaded. A view that is offline reaches these `services` and nothing else.
        """
        forwarder = None
        if view.offline and services:
            forwards = plan_forwards(services)
            forwarder = Forwarder(forwards)
            view = replace(view, hosts=(*view.hosts, *hosts_lines(forwards)))
        if os.geteuid() != 0:
            enter_user_namespace()
        unshare(CLONE_NEWPID | CLONE_NEWIPC)
        if view.offline:
            unshare(CLONE_NEWNET)
            close_network()
        if forwarder is not None:
            forwarder.listen()
        ours, theirs = socket.socketpair()
        creator = os.getpid()
        init = os.fork()
        if init == 0:
            ours.close()
            _run_init(view, theirs, creator, join)
        theirs.close()
        with ours:
            message, rights, _, _ = ours.recvmsg(_MESSAGE_BYTES, socket.CMSG_SPACE(4))
        if message != _READY or not rights:
            with suppress(ChildProcessError):
                os.waitpid(init, 0)
            reason = message.decode("utf-8", errors="replace") or "its first process exited"
            raise OSError(0, f"The sandbox could not be created: {reason}")
        return cls(array.array("i", rights[0][2][:4])[0], init)

    def enter(self) -> None:
        """In a child of the creator: see the sandbox's files, and nothing else from now on."""
        setns(self._mounts, CLONE_NEWNS)
        os.close(self._mounts)

    def close(self) -> None:
        """In the creator: forget the descriptor. The namespaces live while processes do."""
        os.close(self._mounts)


def enter_user_namespace() -> None:
    """Become what may make namespaces, as the same user as before. Raises OSError."""
    uid, gid = os.geteuid(), os.getegid()
    unshare(CLONE_NEWUSER)
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{uid} {uid} 1"),
        ("gid_map", f"{gid} {gid} 1"),
    ):
        descriptor = os.open(f"/proc/self/{name}", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)


def drop_privileges(*, uid: int | None, gid: int | None, groups: tuple[int, ...] = ()) -> None:
    """Become the user that runs a task's code, for good: no capability, no refused system call.

    Afterwards the process may be inspected by others of the same user again, as any process.
    """
    forbid_new_privileges()
    drop_bounding_set()
    if uid is not None and gid is not None and os.geteuid() == 0:
        os.setgroups(groups)
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    drop_capabilities()
    scope_signals_and_sockets()
    install_filter()
    prctl(_PR_SET_DUMPABLE, 1, "prctl dumpable")


def _run_init(view: View, report: socket.socket, creator: int, join: Callable[[], None]) -> None:
    """Run as PID 1 of the sandbox. Never returns."""
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        join()
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
        keep = report.fileno()
        os.closerange(3, keep)
        os.closerange(keep + 1, _LAST_DESCRIPTOR)
        build_root(view)
        mounts = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        rights = array.array("i", [mounts]).tobytes()
        forbid_new_privileges()
        drop_bounding_set()
        drop_capabilities()
        # It was forked from the shim, whose memory holds the task's launch.
        prctl(_PR_SET_DUMPABLE, 0, "prctl dumpable")
        install_filter()
        if not die_with_parent(creator, signal.SIGKILL, parent_is_outside=True):
            os._exit(1)
        report.sendmsg([_READY], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        os.closerange(0, _LAST_DESCRIPTOR)
        while True:
            signal.sigwait({signal.SIGCHLD})
            _collect_orphans()
    except BaseException as error:  # noqa: BLE001 - it must not continue as a second shim
        with suppress(OSError):
            report.send(str(error).encode()[:_MESSAGE_BYTES] or b"?")
    finally:
        os._exit(1)


def _collect_orphans() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def run_inside(description: dict[str, Any], program: list[str]) -> int:
    """Run a program in a sandbox of its own and answer its exit status, -N for signal N.

    `description` has the fields of View, the `services` that it reaches when offline, and
    `own_user`: whether to become its uid and gid.
    """
    options = dict(description)
    own_user = options.pop("own_user", False)
    services = [Service(host, port) for host, port in options.pop("services", ())]
    view = View.from_json(options)
    creator = os.getpid()
    sandbox = Sandbox.create(view, services=services)
    child = os.fork()
    if child == 0:
        try:
            sandbox.enter()
            folder = view.writable[0] if view.writable else "/"
            os.chdir(folder)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_NPROC, (MAX_PROCESSES, MAX_PROCESSES))
            drop_privileges(uid=view.uid if own_user else None, gid=view.gid if own_user else None)
            if die_with_parent(creator, signal.SIGKILL, parent_is_outside=True):
                os.execv(program[0], program)  # noqa: S606 - no shell is wanted
        except BaseException as error:  # noqa: BLE001 - as above
            os.write(2, f"[slipway] {program[0]} could not be started: {error}\n".encode())
        finally:
            os._exit(127)
    sandbox.close()
    _release_streams()
    _, status = os.waitpid(child, 0)
    with suppress(ProcessLookupError):
        os.kill(sandbox.init, signal.SIGKILL)
    return os.waitstatus_to_exitcode(status)


def _release_streams() -> None:
    """Release the standard streams, so that their other ends see when the program closes them."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    os.close(nothing)


def main() -> None:
    """Entry: `python -c BOOT ROOT DESCRIPTION PROGRAM [ARGUMENT …]`, with View's fields as JSON."""
    # A build or a warm process is useless without the agent that started it.
    if not die_with_parent(os.getppid(), signal.SIGKILL):
        raise failure("the parent has exited")
    status = run_inside(json.loads(sys.argv[2]), sys.argv[3:])
    if status < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with suppress(OSError, ValueError):
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)
