"""Output of ranks on its way to the portal: whole, bounded, and no burden to anybody."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.workers.fake_portal import FakePortal, Key
from tests.workers.machines import Machine, eventually

MIB = 1024 * 1024
# Numbered lines of 64 bytes, so that a missing or doubled one shows.
NUMBERED = """
import os, sys
count = int(sys.argv[1])
step = 16384
for first in range(0, count, step):
    block = b"".join(b"%062d\\n\\n" % number for number in range(first, min(first + step, count)))
    view = memoryview(block)
    while view:
        view = view[os.write(1, view):]
"""


def resident_bytes(pid: int) -> int:
    """Memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def numbers_in(portal: FakePortal, key: Key) -> list[int]:
    """The numbered lines that came."""
    return [int(line) for line in bytes(portal.state.logs[(*key, 0)]).split(b"\n") if line]


@pytest.mark.thorough
@pytest.mark.parametrize("ranks", [1, 3])
def test_a_flood_arrives_whole_and_in_bounded_memory(
    portal: FakePortal, machine: Machine, ranks: int
) -> None:
    assert machine.agent is not None
    count = 48 * MIB // 64 // ranks
    before = resident_bytes(machine.agent.pid)
    key = portal.state.run("t1", NUMBERED, str(count), procs=ranks)
    eventually(lambda: portal.state.end_of(key), within_s=60)
    for rank in range(ranks):
        size = (*key, rank)
        eventually(lambda size=size: portal.state.log_sizes[size] == count * 64)  # type: ignore[misc]
        eventually(lambda size=size: size in portal.state.ended_logs)  # type: ignore[misc]
    assert numbers_in(portal, key) == list(range(count))
    assert resident_bytes(machine.agent.pid) - before < 48 * MIB


@pytest.mark.thorough
def test_a_bound_keeps_the_beginning_and_the_end_and_says_what_is_missing(
    portal: FakePortal, make_machine: Callable[..., Machine]
) -> None:
    machine = make_machine("--log-bound-mib", "8").start().connected()
    portal.stop()
    machine.kill()
    portal.start()
    machine.start().connected()
    # The portal goes away before the output begins, so that nothing can be sent in time.
    script = "import time, pathlib\nwhile not pathlib.Path('go').exists(): time.sleep(0.01)\n"
    key = portal.state.run("t1", script + NUMBERED, str(40 * MIB // 64))
    eventually(lambda: "running" in portal.state.kinds(key))
    portal.stop()
    (machine.data_dir / "tasks" / "t1-1" / "work" / "go").touch()
    shim = machine.shim(key)
    eventually(lambda: not shim.is_alive(), within_s=60)
    held = sum(path.stat().st_size for path in machine.state(key).logs(0).iterdir())
    assert held <= 9 * MIB
    portal.start()
    eventually(lambda: portal.state.end_of(key), within_s=30)
    text = eventually(
        lambda: (
            log if (log := portal.state.log_of(key)).endswith(f"{40 * MIB // 64 - 1}\n\n") else ""
        ),
        within_s=30,
    )
    assert text.startswith(f"{0:062d}\n")
    (marker,) = [line for line in text.splitlines() if "[slipway]" in line]
    missing = int(marker.split()[1])
    assert len(text) - len(marker) - 2 + missing == 40 * MIB


@pytest.mark.thorough
def test_a_log_goes_on_where_it_was_after_crashes_of_everything(
    portal: FakePortal, machine: Machine
) -> None:
    count = 12 * MIB // 64
    slow = NUMBERED.replace("    view =", "    __import__('time').sleep(0.05)\n    view =", 1)
    key = portal.state.run("t1", slow, str(count))
    for round_ in range(4):
        eventually(lambda round_=round_: portal.state.log_sizes[(*key, 0)] > round_ * MIB)  # type: ignore[misc]
        machine.kill()
        if round_ % 2:
            portal.stop()
            portal.start()
        machine.start()
    eventually(lambda: portal.state.log_sizes[(*key, 0)] == count * 64, within_s=60)
    assert numbers_in(portal, key) == list(range(count))


def test_output_appears_within_a_second(portal: FakePortal, machine: Machine) -> None:
    script = (
        "import time\n"
        "for number in range(20):\n"
        "    print(time.time())\n"
        "    time.sleep(0.1)\n"
        "time.sleep(60)\n"
    )
    key = portal.state.run("t1", script)
    eventually(lambda: portal.state.log_of(key).count("\n") >= 5)
    # With one line each 0.1 s, being at most 1 s behind is having all but ten of them.
    written = machine.state(key).logs(0) / f"{0:020d}"
    assert portal.state.log_of(key).count("\n") >= written.read_text().count("\n") - 10
    eventually(lambda: portal.state.log_of(key).count("\n") == 20)


@pytest.mark.thorough
def test_bytes_that_are_no_text_come_through(portal: FakePortal, machine: Machine) -> None:
    key = portal.state.run("t1", "import os\nos.write(1, bytes(range(256)) * 4)")
    end = eventually(lambda: portal.state.end_of(key))
    eventually(lambda: bytes(portal.state.logs[(*key, 0)]) == bytes(range(256)) * 4)
    assert "\0" not in end.log_tail
