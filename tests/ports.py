"""Ports for the servers of tests, which no other test run on this machine gets."""

import random
import socket
from collections import deque
from pathlib import Path

_LOWEST = 10_000
# Reservations of this process. The oldest end first: its server listens by then, or has ended.
_RESERVED = 200
_reservations: deque[socket.socket] = deque()


def free_ports(count: int) -> list[int]:
    """Reserve ports that nobody listens on.

    They are below those that the kernel gives to clients, or a connection could take one first.
    """
    candidates = list(range(_LOWEST, _first_of_clients()))
    random.SystemRandom().shuffle(candidates)
    ports: list[int] = []
    for port in candidates:
        if len(ports) == count:
            break
        if _reserve(port):
            ports.append(port)
    if len(ports) < count:
        raise AssertionError(f"fewer than {count} ports are free from {_LOWEST} on")
    while len(_reservations) > max(count, _RESERVED):
        _reservations.popleft().close()
    return ports


def _first_of_clients() -> int:
    try:
        text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text("ascii")
    except OSError:
        return 32_768
    first = int(text.split()[0])
    return first if first > _LOWEST + 1_000 else 65_536


def _reserve(port: int) -> bool:
    # An abstract name: it ends with the process, and is one for all processes of the machine.
    reservation = socket.socket(socket.AF_UNIX)
    try:
        reservation.bind(f"\0slipway-tests-port-{port}")
        with socket.socket() as probe:
            probe.bind(("", port))
    except OSError:
        reservation.close()
        return False
    _reservations.append(reservation)
    return True
