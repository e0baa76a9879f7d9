"""Ports and interfaces for the ranks of one task."""

import fcntl
import socket
import struct
from contextlib import suppress
from pathlib import Path

_SIOCGIFADDR = 0x8915
_SIOCSIFFLAGS, _SIOCSIFADDR, _SIOCSIFNETMASK = 0x8914, 0x8916, 0x891C
_IFF_UP, _IFF_RUNNING = 0x1, 0x40
_BACKLOG = 4096


def interface_of(address: str) -> str | None:
    """Name of the network interface that carries an IPv4 address of this machine."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            with suppress(OSError):
                answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
                if socket.inet_ntoa(answer[20:24]) == address:
                    return name
    return None


def reserve_port(address: str) -> socket.socket:
    """Reserve a free port that rank 0 may still listen on.

    The socket is bound exclusively, so nobody else is assigned the port. Allowing reuse afterwards
    lets one more socket bind it, if that one allows reuse as well (torch's store does) and ours
    never listens.
    """
    holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        holder.bind((address, 0))
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    except OSError:
        holder.close()
        raise
    return holder


def listen_on_free_port(address: str) -> socket.socket:
    """Open a port for a store that the shim serves: peers can connect before it is served."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.bind((address, 0))
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def listen_on_path(path: str) -> socket.socket:
    """Open a Unix socket that only processes of this user can connect to."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        Path(path).unlink(missing_ok=True)
        listener.bind(path)
        Path(path).chmod(0o600)
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def port_of(bound: socket.socket) -> int:
    """The port a socket is bound to."""
    port: int = bound.getsockname()[1]
    return port


def endpoint(address: str, port: int) -> str:
    """Return `address:port`, with brackets around an IPv6 address."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def own_address() -> str:
    """Return the address of this container or machine, or loopback without a network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # No packet is sent: connecting a datagram socket only asks the routing table.
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        address: str = probe.getsockname()[0]
        return address


def close_network() -> None:
    """In a fresh network namespace: bring up the loopback interface, the only one there is."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        request = struct.pack("16sh14x", b"lo", _IFF_UP | _IFF_RUNNING)
        fcntl.ioctl(probe.fileno(), _SIOCSIFFLAGS, request)


def add_loopback_address(address: str) -> None:
    """In a network namespace of our own: let the loopback interface carry one more address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # Interface aliases: the oldest interface, and it needs no netlink.
        name = f"lo:{int.from_bytes(socket.inet_aton(address), 'big') % 10_000_000}"
        packed = struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton(address))
        fcntl.ioctl(probe.fileno(), _SIOCSIFADDR, struct.pack("16s16s8x", name.encode(), packed))
        mask = struct.pack("HH4s8x", socket.AF_INET, 0, b"\xff\xff\xff\xff")
        fcntl.ioctl(probe.fileno(), _SIOCSIFNETMASK, struct.pack("16s16s8x", name.encode(), mask))
