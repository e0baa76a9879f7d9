"""Access to named services, at their usual addresses, for tasks without a network of their own.

A sandbox with an empty network namespace has a loopback interface and nothing else. For each
service that it may reach, a socket listens inside at the service's own address. The sockets are
created inside and handed to a process outside, which accepts on them and copies bytes to the real
service. Names are listed in the sandbox's /etc/hosts, so TLS certificates are verified as usual.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from workers.launcher.network import add_loopback_address
from workers.launcher.sidecars import SidecarProcess

_LOOPBACK: Final = "127.0.0.1"
# All addresses of 127.0.0.0/8 are local without configuration. Each name gets one of them.
_NAMES_FROM: Final = int(ipaddress.IPv4Address("127.77.0.1"))
_BACKLOG: Final = 256
_BLOCK: Final = 1 << 16
MAX_SERVICES: Final = 200


@dataclass(frozen=True)
class Route:
    """A listening socket and the policy of who may connect."""

    path: str
    policy: str


ROUTES: Final = (
    Route("any port of the sandbox", "the task alone; its bytes reach the services of its rule"),
)


@dataclass(frozen=True)
class Service:
    """A service outside: a host by name or IPv4 address, and a port."""

    host: str
    port: int


@dataclass(frozen=True)
class Forward:
    """A service and the address inside at which it is reached."""

    service: Service
    address: str


def plan_forwards(services: Sequence[Service]) -> list[Forward]:
    """Choose the address of each service inside. Raises ValueError for one that cannot have one."""
    unique = sorted(set(services), key=lambda service: (service.host, service.port))
    if len(unique) > MAX_SERVICES:
        raise ValueError(f"{len(unique)} services are more than {MAX_SERVICES}")
    forwards: list[Forward] = []
    names: dict[str, str] = {}
    for service in unique:
        host = service.host.strip("[]").lower()
        try:
            address = str(ipaddress.IPv4Address(host))
        except ValueError:
            if ":" in host:
                raise ValueError(f"{host} is an IPv6 address; use a name or IPv4") from None
            number = _NAMES_FROM + len(names)
            is_local = host == "localhost"
            address = _LOOPBACK if is_local else str(ipaddress.IPv4Address(number))
            address = names.setdefault(host, address)
        # 127.0.0.1 and localhost are the same address.
        if all((old.address, old.service.port) != (address, service.port) for old in forwards):
            forwards.append(Forward(service, address))
    return forwards


def hosts_lines(forwards: Sequence[Forward]) -> tuple[str, ...]:
    """Lines of /etc/hosts for the services that have names."""
    pairs = {(forward.address, forward.service.host) for forward in forwards}
    return tuple(f"{address} {host}" for address, host in sorted(pairs) if address != host)


class Forwarder:
    """The process outside. Start it before the network is left, and give it the sockets after."""

    def __init__(self, forwards: Sequence[Forward]) -> None:
        self._forwards = list(forwards)
        self._process = SidecarProcess(self._forward, len(self._forwards))

    def listen(self) -> None:
        """In the empty network: open a socket for each service and hand them over."""
        for forward in self._forwards:
            if not forward.address.startswith("127."):
                add_loopback_address(forward.address)
            listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((forward.address, forward.service.port))
            listener.listen(_BACKLOG)
            self._process.send_socket(listener)
        self._process.close()

    def _forward(self, listeners: list[socket.socket]) -> None:
        asyncio.run(_serve(listeners, self._forwards))


async def _serve(listeners: list[socket.socket], forwards: list[Forward]) -> None:
    for listener, forward in zip(listeners, forwards, strict=True):
        listener.setblocking(False)
        await asyncio.start_server(_Connections(forward.service).accept, sock=listener)
    await asyncio.Event().wait()


class _Connections:
    """Connections to one service."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Copy bytes both ways until one side is done."""
        try:
            to_service = await asyncio.open_connection(self._service.host, self._service.port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_copy(reader, to_service[1]), _copy(to_service[0], writer))
        for side in (writer, to_service[1]):
            side.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(_BLOCK):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
