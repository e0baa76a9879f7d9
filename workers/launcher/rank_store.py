"""The rendezvous store of a warm start: a warm process provides it, and the shim serves it."""

import os
import signal
import socket
from typing import Protocol

from workers.launcher.launch import RendezvousAddress
from workers.launcher.sidecars import SidecarProcess


class StoreHost(Protocol):
    """Rendezvous store that a warm process provides, served by the shim beside its ranks."""

    def serve(self, listening: int, address: str, port: int) -> object:
        """Serve on a listening socket. The caller must keep a reference to the returned store."""


class RankStore:
    """The store of one task, in the shim or in a process of its own."""

    def __init__(self, host: StoreHost) -> None:
        self._host = host
        self._store: object | None = None
        self._sidecar: SidecarProcess | None = None

    def prepare(self) -> None:
        """Start a process for it: behind the PID namespace of a sandbox no thread can start."""
        self._sidecar = SidecarProcess(self._run_process, 1)

    @property
    def pid(self) -> int:
        """Return the process that serves it."""
        return os.getpid() if self._sidecar is None else self._sidecar.pid

    def serve(self, listening: socket.socket, meeting: RendezvousAddress) -> None:
        """Begin to serve. Call it after the last fork, because a fork would lose its threads."""
        if self._sidecar is not None:
            self._sidecar.send_socket(listening)
            self._sidecar.close()
        else:
            self._store = self._host.serve(listening.detach(), meeting.address, meeting.port)

    def close(self) -> None:
        """In a forked rank: close the connection to the process."""
        if self._sidecar is not None:
            self._sidecar.close()

    def _run_process(self, sockets: list[socket.socket]) -> None:
        """Run as the process: serve the store at the address that the ranks have."""
        address, port = sockets[0].getsockname()[:2]
        self._store = self._host.serve(sockets[0].detach(), address, port)
        while True:
            signal.pause()
