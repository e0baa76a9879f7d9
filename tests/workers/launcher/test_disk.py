"""What a task is charged with on the disk, in trees that mean harm."""

import mmap
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from workers.launcher.disk import DiskMeter, Measurement

MIB = 1 << 20
ORDINARY_UID = 654_321
ROOT = Path(__file__).parents[3]
MEASURE = """
import os, sys
sys.path.insert(0, sys.argv[1])
from workers.launcher.disk import DiskMeter
meter = DiskMeter(own=(sys.argv[2],))
for _ in meter.measure_own():
    pass
print(meter.result.own_bytes)
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="sl-meter-") as path:
        yield Path(path)


def fill(path: Path, size: int = MIB) -> Path:
    path.write_bytes(bytes(size))
    return path


def measure(folder: Path, *pids: int) -> Measurement:
    meter = DiskMeter(own=(str(folder),))
    for _ in meter.measure_own(pids):
        pass
    return meter.result


def test_blocks_count_and_not_lengths(folder: Path) -> None:
    with (folder / "holes").open("wb") as file:
        file.truncate(100 * MIB)
    fill(folder / "data")
    assert MIB <= measure(folder).own_bytes < 2 * MIB


def test_a_file_with_many_names_counts_once(folder: Path) -> None:
    data = fill(folder / "data")
    for number in range(10):
        (folder / f"data-{number}").hardlink_to(data)
    assert measure(folder).own_bytes < 2 * MIB


def test_links_are_not_followed(folder: Path) -> None:
    fill(folder / "outside")
    (folder / "own").mkdir()
    (folder / "own" / "file").symlink_to(folder / "outside")
    (folder / "own" / "up").symlink_to("..")
    assert measure(folder / "own").own_bytes < MIB
    (folder / "link").symlink_to("own")
    assert measure(folder / "link").own_bytes == 0


def test_open_and_mapped_files_without_a_name_count(folder: Path) -> None:
    (folder / "own").mkdir()
    before = measure(folder / "own", os.getpid()).own_bytes
    path = fill(folder / "own" / "data", 4 * MIB)
    with path.open("r+b") as file:
        path.unlink()
        assert measure(folder / "own", os.getpid()).own_bytes >= before + 4 * MIB
        mapped = mmap.mmap(file.fileno(), 0)
    with mapped:
        assert measure(folder / "own", os.getpid()).own_bytes >= before + 4 * MIB
    assert measure(folder / "own", os.getpid()).own_bytes < before + MIB


def test_empty_files_count(folder: Path) -> None:
    for number in range(1000):
        (folder / str(number)).touch()
    assert measure(folder).own_bytes >= 1000 * 512
    assert measure(folder).files == 1000


def test_a_folder_that_vanishes_is_no_failure(folder: Path) -> None:
    for number in range(200):
        (folder / str(number)).mkdir()
    meter = DiskMeter(own=(str(folder),))
    steps = meter.measure_own()
    next(steps)
    for number in range(200):
        (folder / str(number)).rmdir()
    for _ in steps:
        pass
    assert not meter.result.too_deep


@pytest.mark.thorough
def test_folders_too_deep_to_measure_are_reported(folder: Path) -> None:
    place = os.open(folder, os.O_RDONLY)
    for _ in range(1100):
        os.mkdir("deeper", dir_fd=place)
        below = os.open("deeper", os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = below
    os.close(place)
    assert measure(folder).too_deep
    subprocess.run(["rm", "-rf", folder / "deeper"], check=True)


def test_of_shared_folders_what_changed_counts_up_to_what_was_written(folder: Path) -> None:
    (folder / "own").mkdir()
    (folder / "shared").mkdir()
    fill(folder / "shared" / "old", 8 * MIB)
    since_s = (folder / "shared" / "old").stat().st_ctime + 1e-6
    while fill(folder / "shared" / "new", 2 * MIB).stat().st_ctime <= since_s:
        pass
    meter = DiskMeter((str(folder / "own"),), (str(folder / "shared"),), since_s)
    for _ in (*meter.measure_own(), *meter.shared_steps()):
        pass
    own = meter.result.own_bytes
    assert 2 * MIB <= meter.result.shared_bytes < 3 * MIB
    assert meter.result.held_bytes(0) == own
    assert meter.result.held_bytes(MIB) == own + MIB
    assert meter.result.held_bytes(100 * MIB) == own + meter.result.shared_bytes


@pytest.mark.parametrize("mode", [0o000, 0o300, 0o600])
def test_a_closed_folder_is_measured_and_closed_again(folder: Path, mode: int) -> None:
    closed = folder / "closed"
    (closed / "inner").mkdir(parents=True)
    fill(closed / "inner" / "data")
    fill(closed / "data")
    user = ORDINARY_UID if os.getuid() == 0 else None
    if user is not None:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, user, user)
    closed.chmod(mode)
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(ROOT), str(folder)],
        user=user,
        group=user,
        extra_groups=None if user is None else [],
        capture_output=True,
        text=True,
        check=True,
    )
    after = closed.stat().st_mode & 0o777
    closed.chmod(0o700)
    assert int(done.stdout) >= 2 * MIB
    assert after == mode
