"""Test runs beside each other get different ports."""

import subprocess
import sys
from pathlib import Path

from tests.live import ROOT
from tests.ports import free_ports

_TAKE = """
from tests.ports import free_ports
print(*free_ports(150), flush=True)
input()
"""


def test_processes_at_the_same_time_get_different_ports() -> None:
    """No server listens yet, so the ports look free to everybody."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _TAKE],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(8)
    ]
    ports: list[str] = []
    for process in processes:
        assert process.stdout is not None
        ports += process.stdout.readline().split()
    for process in processes:
        process.communicate("\n")
    assert len(ports) == len(set(ports)) == 8 * 150


def test_no_client_gets_the_port_of_a_server() -> None:
    """The kernel chooses the ports of clients from a range of its own."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text("ascii").split()[0])
    assert all(port < first for port in free_ports(20))
