"""The sockets between tasks, shims and the agent: what another task of the machine can do there."""

import multiprocessing
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from tests.workers.fake_portal import Key
from tests.workers.machines import Machine, Site, eventually

_FORGED_STEP = 990_099
# Speaks to every socket of the machine but its own, as user code of another project could.
_ATTACK = f"""
import json, os, socket
messages = [
    {{"step": {_FORGED_STEP}, "rank": 0}},
    {{"checkpoint": {{"step": {_FORGED_STEP}, "size_bytes": 1, "kept": [{_FORGED_STEP}]}}}},
    {{"strategy": "forged", "reason": "forged"}},
    {{"failure": {{"rank": 0, "type": "Forged", "message": "forged", "at_ns": 1}}}},
]
own = os.environ["SLIPWAY_TASK_SOCKET"]
lines = open("/proc/net/unix").read().splitlines()[1:]
paths = [line.split()[7] for line in lines if len(line.split()) > 7]
for path in set(paths) - {{own}}:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        try:
            for message in messages:
                sender.sendto(json.dumps(message).encode(), path)
            print("sent")
        except OSError as error:
            print("refused", error)
print("<end>")
"""
_VICTIM = """
import json, os, pathlib, socket, subprocess, sys, time
while not pathlib.Path("go-on").exists():
    time.sleep(0.01)
report = (
    "import os, socket;"
    "socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto("
    "b'{\\"step\\": %d, \\"rank\\": 0}', os.environ['SLIPWAY_TASK_SOCKET'])"
)
child = subprocess.Popen([sys.executable, "-c", report % 7 + "; input()"], stdin=subprocess.PIPE)
while not pathlib.Path("heard").exists():
    time.sleep(0.01)
child.communicate(b"\\n")
exec(report % 8)
"""


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A node without sandboxes, where tasks find the sockets of others."""
    running = Site("--isolation", "shared")
    yield running
    running.close()


def _steps(site: Site, key: Key) -> set[int]:
    reports = [*site.portal.state.reports[key]]
    return {report.step for report in reports if report.kind == "progress" and report.step}


def test_a_task_cannot_speak_for_another_one(site: Site) -> None:
    victim = site.run(_VICTIM)
    eventually(lambda: "running" in site.portal.state.kinds(victim))
    attack = site.run_to_end(_ATTACK)
    assert "sent" in site.whole_log(attack), "it reached no socket: nothing was tried"
    work = site.machine.data_dir / "tasks" / f"{victim[0]}-{victim[1]}" / "work"
    (work / "go-on").touch()
    # What a process of its own tells arrives, also of one that its script has started.
    eventually(lambda: 7 in _steps(site, victim), what="the step of a child")
    (work / "heard").touch()
    end = site.end_of(victim)
    assert (end.reason, end.exit_code) == ("completed", 0), end.message
    assert _steps(site, victim) == {7, 8}


def _flood(path: str, has_begun: Event) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"!", path)
        has_begun.set()
        with suppress(OSError):  # the agent has gone
            while True:
                sender.sendto(b"!", path)


@contextmanager
def _flooded(path: Path, senders: int) -> Iterator[None]:
    context = multiprocessing.get_context("spawn")
    begun = [context.Event() for _ in range(senders)]
    processes = [context.Process(target=_flood, args=(str(path), event)) for event in begun]
    for process in processes:
        process.start()
    try:
        for event in begun:
            assert event.wait(30), "no flood has begun"
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()


def _processor_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


@pytest.mark.thorough
def test_a_flood_of_wake_ups_does_not_occupy_the_agent(machine: Machine) -> None:
    """Anything that runs here may wake the agent; it must stay able to renew its leases."""
    assert machine.agent is not None
    bell = machine.data_dir / "shared" / "bell"
    with _flooded(bell, senders=2):
        machine.connected_again()
        began = _processor_ticks(machine.agent.pid)
        clock = time.monotonic()
        machine.connected_again()
        machine.connected_again()
        used_s = (_processor_ticks(machine.agent.pid) - began) / os.sysconf("SC_CLK_TCK")
        lasted_s = time.monotonic() - clock
    assert used_s < 0.25 * lasted_s, f"{used_s:.2f} s of a processor in {lasted_s:.2f} s"
