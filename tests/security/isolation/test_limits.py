"""A task that takes all it can get ends or is held back, and the others go on."""

from collections.abc import Iterator

import pytest

from slipway.schemas.workloads import Resources
from tests.security.isolation.arena import Arena, Neighbour, arena_at
from tests.security.isolation.attacks import LEVELS, NAMESPACES, ROOTLESS
from tests.workers.machines import eventually

pytestmark = pytest.mark.slow
MIB = 1 << 20
SMALL = Resources(cpu_millis=1000, memory_bytes=256 * MIB)
# Threads count like processes, and are cheaper for the machine that tests run on.
PROCESSES = """
import threading
threading.stack_size(1 << 16)
stop = threading.Event()
count = 0
try:
    while count < 6000:
        threading.Thread(target=stop.wait, daemon=True).start()
        count += 1
except RuntimeError:
    pass
print("started", count, flush=True)
print("<end>", flush=True)
"""
MEMORY = """
blocks = []
while True:
    blocks.append(bytearray(1 << 22))
"""
SHARED_MEMORY = """
with open("/dev/shm/fill", "wb") as file:
    for _ in range(1024):
        file.write(bytes(1 << 20))
        file.flush()
"""
# A tenth of a second between two files: enough for what watches once a second.
ANONYMOUS_FILES = """
import os, time
for _ in range(100):
    file = os.memfd_create("fill")
    for _ in range(16):
        os.write(file, bytes(1 << 20))
    time.sleep(0.1)
"""
SYSTEM_V_MEMORY = """
import ctypes, time
libc = ctypes.CDLL(None, use_errno=True)
for key in range(1, 1024):
    segment = libc.shmget(key, 1 << 20, 0o1600)
    if segment < 0:
        raise OSError(ctypes.get_errno(), "shmget")
    libc.shmat.restype = ctypes.c_void_p
    address = libc.shmat(segment, None, 0)
    ctypes.memset(address, 1, 1 << 20)
    libc.shmdt(ctypes.c_void_p(address))
    time.sleep(0.01)
"""
OPEN_FILES = """
import os
count = 0
try:
    while True:
        os.dup(0)
        count += 1
except OSError as error:
    print("opened", count, flush=True)
print("<end>", flush=True)
"""
# Fills that must end the task.
FILLS = {
    "memory": MEMORY,
    "shared memory": SHARED_MEMORY,
    "memory files": ANONYMOUS_FILES,
    "System V memory": SYSTEM_V_MEMORY,
}


@pytest.fixture(scope="module", params=LEVELS)
def arena(request: pytest.FixtureRequest) -> Iterator[Arena]:
    made = arena_at(request.param)
    yield made
    made.close()


@pytest.fixture(scope="module")
def neighbour(arena: Arena) -> Neighbour:
    return arena.neighbour(warm=False)


def goes_on(arena: Arena, neighbour: Neighbour) -> None:
    """Check that the neighbour lives and the agent takes work."""
    beats = arena.portal.state.log_of(neighbour.key).count("beat")
    arena.machine.connected_again()
    eventually(lambda: arena.portal.state.log_of(neighbour.key).count("beat") > beats)


def test_processes_are_limited(arena: Arena, neighbour: Neighbour) -> None:
    key = arena.want("beta", {"train.py": PROCESSES})
    started = int(arena.log_until(key, r"^started (\d+)"))
    assert started < 4200
    goes_on(arena, neighbour)


def test_open_files_are_limited(arena: Arena, neighbour: Neighbour) -> None:
    key = arena.want("beta", {"train.py": OPEN_FILES})
    assert int(arena.log_until(key, r"^opened (\d+)")) <= 1 << 16
    goes_on(arena, neighbour)


@pytest.mark.parametrize("fill", FILLS)
def test_memory_is_limited(arena: Arena, neighbour: Neighbour, fill: str) -> None:
    if fill in ("shared memory", "System V memory") and arena.level not in (NAMESPACES, ROOTLESS):
        pytest.skip("the machine's own: control groups count it where there are any")
    key = arena.want("beta", {"train.py": FILLS[fill]}, resources=SMALL)
    end = eventually(lambda: arena.portal.state.end_of(key), within_s=60)
    assert end.reason != "completed", end
    # Without control groups the kernel lets a process have a GiB more until it is noticed.
    assert (end.memory_peak_bytes or 0) < SMALL.memory_bytes + 1100 * MIB
    goes_on(arena, neighbour)
