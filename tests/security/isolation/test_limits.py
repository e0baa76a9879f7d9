"""A task that takes all it can get ends or is held back, and the others go on."""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from slipway.schemas.agent import TaskReport
from slipway.schemas.workloads import Resources
from tests.security.isolation.arena import SMOKE, Arena, Neighbour, arena_at
from tests.security.isolation.attacks import LEVELS, NAMESPACES, ROOTLESS
from tests.workers.fake_portal import Key
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
HUGE_FILE = """
with open("fill", "wb") as file:
    while True:
        file.write(bytes(1 << 20))
        file.flush()
"""
MANY_FILES = """
import itertools, os
for number in itertools.count():
    os.makedirs(f"folder-{number // 100}", exist_ok=True)
    with open(f"folder-{number // 100}/{number}", "wb") as file:
        file.write(bytes(1 << 14))
"""
# A quarter of a GiB in the seconds that a measurement may take, held by no name.
UNLINKED_FILE = """
import os, time
files = []
while True:
    files.append(open("fill", "wb", buffering=0))
    os.unlink("fill")
    for _ in range(4):
        files[-1].write(bytes(1 << 20))
        time.sleep(0.02)
"""
MAPPED_FILE = """
import mmap, os, time
maps = []
while True:
    with open("fill", "w+b", buffering=0) as file:
        os.unlink("fill")
        file.write(bytes(1 << 20))
        maps.append(mmap.mmap(file.fileno(), 0))
    time.sleep(0.02)
"""
CLOSED_FOLDER = """
import os, time
os.mkdir("closed", 0o300)
for number in range(1 << 20):
    with open(f"closed/{number}", "wb") as file:
        file.write(bytes(1 << 20))
    time.sleep(0.02)
"""
DEEP_FOLDERS = """
import os, time
while True:
    os.mkdir("deeper")
    os.chdir("deeper")
    with open("fill", "wb") as file:
        file.write(bytes(1 << 16))
    time.sleep(0.001)
"""
TEMPORARY_FILES = """
import tempfile, time
for _ in range(1 << 20):
    with tempfile.NamedTemporaryFile(delete=False) as file:
        file.write(bytes(1 << 20))
    time.sleep(0.02)
"""
PROJECT_FOLDERS = """
import itertools, os, time
places = [os.environ[name] for name in ("SLIPWAY_PERSISTENT_DIR", "SLIPWAY_CACHE")]
for number in itertools.count():
    with open(f"{places[number % 2]}/fill-{number}", "wb") as file:
        file.write(bytes(1 << 20))
    time.sleep(0.02)
"""
# Fills of the node's disk, of which each must end the task with the same reason.
DISK_FILLS = {
    "one file": HUGE_FILE,
    "many files": MANY_FILES,
    "files without a name": UNLINKED_FILE,
    "mapped files without a name": MAPPED_FILE,
    "a folder nobody may list": CLOSED_FOLDER,
    "folders in folders": DEEP_FOLDERS,
    "temporary files": TEMPORARY_FILES,
    "folders of the project": PROJECT_FOLDERS,
}
# Looks large and is not: holes, names of the same file, and what is deleted again.
SMALL_USER = """
import os, time
with open("holes", "wb") as file:
    file.truncate(100 << 20)
with open("data", "wb") as file:
    file.write(bytes(12 << 20))
for number in range(8):
    os.link("data", f"data-{number}")
for number in range(20):
    with open("again", "wb") as file:
        file.write(bytes(8 << 20))
    os.unlink("again")
    time.sleep(0.2)
print("held little", flush=True)
"""
WRITER = """
import itertools, time
for number in itertools.count():
    with open(f"mine-{number % 4}", "wb") as file:
        file.write(bytes(1 << 20))
    print("wrote", number, flush=True)
    time.sleep(0.1)
"""
DISK = "48MiB"
# Fills that must end the task.
FILLS = {
    "memory": MEMORY,
    "shared memory": SHARED_MEMORY,
    "memory files": ANONYMOUS_FILES,
    "System V memory": SYSTEM_V_MEMORY,
}


@pytest.fixture(scope="module", params=LEVELS)
def arena(request: pytest.FixtureRequest) -> Iterator[Arena]:
    made = arena_at(request.param, "--task-disk", DISK)
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


@pytest.fixture(scope="module")
def writer(arena: Arena) -> Key:
    """A task of another project that writes a little all the time."""
    return arena.want("alpha", {"train.py": WRITER}, resources=SMALL)


def still_writes(arena: Arena, writer: Key) -> None:
    """Check that what others write arrives on the disk."""

    def written() -> int:
        log = arena.portal.state.log_of(writer)
        return int(re.findall(r"^wrote (\d+)$", log, re.MULTILINE)[-1])

    eventually(lambda: "wrote" in arena.portal.state.log_of(writer))
    before = written()
    eventually(lambda: written() > before + 3, what="more writes of the neighbour")
    assert arena.portal.state.end_of(writer) is None


def end_of(arena: Arena, key: Key) -> TaskReport:
    return eventually(lambda: arena.portal.state.end_of(key), within_s=90, what=f"the end of {key}")


@pytest.mark.parametrize("fill", DISK_FILLS)
def test_disk_is_limited(arena: Arena, writer: Key, fill: str) -> None:
    key = arena.want("beta", {"train.py": DISK_FILLS[fill]}, resources=SMALL)
    end = end_of(arena, key)
    assert end.reason == "disk_full", end
    if fill != "one file":
        assert "its limit of 48 MiB" in end.message or "too deep" in end.message, end
    still_writes(arena, writer)


def test_a_task_below_its_bound_is_not_touched(arena: Arena, writer: Key) -> None:
    key = arena.want("beta", {"train.py": SMALL_USER}, resources=SMALL)
    end = end_of(arena, key)
    assert end.reason == "completed", end
    still_writes(arena, writer)


def test_what_a_task_filled_is_removed_at_its_end(arena: Arena) -> None:
    key = arena.want("beta", {"train.py": TEMPORARY_FILES}, resources=SMALL)
    assert end_of(arena, key).reason == "disk_full"
    folder = arena.machine.state(key).path.parent
    eventually(lambda: not any((folder / name).exists() for name in ("work", "home", "tmp")))


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A file system of 256 MiB."""
    if os.getuid():
        pytest.skip("a small file system can only be mounted by root")
    folder = Path(tempfile.mkdtemp(prefix="sl-disk-"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256m", "tmpfs", folder], check=True)
    folder.chmod(0o711)
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)
    folder.rmdir()


PACED_FILL = """
import itertools, time
for number in itertools.count():
    with open(f"fill-{number}", "wb") as file:
        file.write(bytes(1 << 20))
    time.sleep(0.02)
"""
STEADY_HOLDER = """
import time
with open("held", "wb") as file:
    file.write(bytes(60 << 20))
print("holds", flush=True)
while True:
    print("beat", flush=True)
    time.sleep(0.1)
"""


def test_a_reserve_of_the_disk_is_kept(small_disk: Path) -> None:
    options = ("--task-disk", "1GiB", "--disk-reserve", "64MiB")
    arena = arena_at(SMOKE, *options, data_dir=small_disk / "node")
    try:
        holder = arena.want("gamma", {"train.py": STEADY_HOLDER}, resources=SMALL)
        arena.log_until(holder, "^(holds)")
        writer = arena.want("alpha", {"train.py": WRITER}, resources=SMALL)
        still_writes(arena, writer)
        end = end_of(arena, arena.want("beta", {"train.py": PACED_FILL}, resources=SMALL))
        assert end.reason == "disk_full", end
        assert "of its reserve of 64 MiB" in end.message, end
        # Neither the larger one that grows no more, nor the small one that writes.
        eventually(lambda: shutil.disk_usage(small_disk).free > 80 << 20)
        still_writes(arena, writer)
        assert arena.portal.state.end_of(holder) is None
    finally:
        arena.close()


def test_no_task_ends_for_what_others_fill(small_disk: Path) -> None:
    options = ("--task-disk", "1GiB", "--disk-reserve", "64MiB")
    arena = arena_at(SMOKE, *options, data_dir=small_disk / "node")
    try:
        writer = arena.want("alpha", {"train.py": WRITER}, resources=SMALL)
        still_writes(arena, writer)
        with (small_disk / "of-somebody-else").open("wb") as file:
            while shutil.disk_usage(small_disk).free > 24 << 20:
                file.write(bytes(1 << 20))
                file.flush()
        eventually(lambda: "no task is the cause" in arena.machine.log.read_text())
        still_writes(arena, writer)
    finally:
        arena.close()
