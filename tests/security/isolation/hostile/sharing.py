"""Attacks on what tasks of one machine share: sockets, ports, memory."""

import ctypes
import http.client
import json
import os
import socket

from tests.security.isolation.hostile.findings import (
    FILE_BYTES,
    LIBC,
    Findings,
    Targets,
    list_folder,
)


def path_sockets(findings: Findings, targets: Targets) -> None:
    for path in (
        *targets["sockets"],
        "/run/docker.sock",
        "/var/run/docker.sock",
        "/run/dbus/system_bus_socket",
    ):
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            with socket.socket(socket.AF_UNIX, kind) as client:
                client.settimeout(2)
                if findings.try_(f"connect to {path}", client.connect, path):
                    findings.see(_exchange(client))


def _exchange(client: socket.socket) -> bytes:
    try:
        client.send(json.dumps({"step": 424242, "rank": 0}).encode())
        return client.recv(FILE_BYTES) if client.type == socket.SOCK_STREAM else b""
    except OSError:
        return b""


def abstract_sockets(findings: Findings, targets: Targets) -> None:
    for name in targets["abstract"]:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(2)
            if findings.try_(f"connect to @{name}", client.connect, f"\0{name}"):
                findings.see(_exchange(client))


def loopback(findings: Findings, targets: Targets) -> None:
    """Services of others on this machine that ask nobody who they are."""
    places = [
        (host, port) for host in (*targets["hosts"], *_gateways()) for port in targets["ports"]
    ]
    for host, port in places:
        connection = http.client.HTTPConnection(host, port, timeout=3)
        try:
            connection.request("GET", "/")
            findings.see(connection.getresponse().read(FILE_BYTES))
            findings.did("reach a loopback service of another task")
        except (OSError, http.client.HTTPException):
            continue
        finally:
            connection.close()


def _gateways() -> list[str]:
    """The machine as a container sees it: the address that its packets go to first."""
    try:
        with open("/proc/net/route") as file:
            routes = [line.split() for line in file.readlines()[1:]]
    except OSError:
        return []
    return [
        socket.inet_ntoa(bytes.fromhex(route[2])[::-1])
        for route in routes
        if route[2] != "00000000"
    ]


def shared_memory(findings: Findings, targets: Targets) -> None:
    for name in targets["shm"]:
        findings.read(f"/dev/shm/{name}")
    for name in list_folder("/dev/shm"):
        findings.read(f"/dev/shm/{name}")
    LIBC.shmat.restype = ctypes.c_void_p
    for key in targets["sysv"]:
        segment = LIBC.shmget(key, 64, 0)
        address = LIBC.shmat(segment, None, 0o10000) if segment >= 0 else None
        if address and address != ctypes.c_void_p(-1).value:
            findings.see(ctypes.string_at(address, 64))
    for name in targets["queues"]:
        queue = LIBC.mq_open(name.encode(), os.O_RDONLY | os.O_NONBLOCK)
        buffer = ctypes.create_string_buffer(8192)
        if queue >= 0 and LIBC.mq_receive(queue, buffer, 8192, None) > 0:
            findings.see(buffer.raw)


def leftovers(findings: Findings, targets: Targets) -> None:
    """What a task of another project that has ended left behind."""
    for path in targets["leftovers"]:
        if findings.read(path):
            findings.did(f"read {path}")
