"""What is checked before anything starts: ports, disk, one instance a folder."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from portal.config.supervision.children import reason_of
from portal.config.supervision.errors import StartError, start_error_from
from portal.config.supervision.instance import check_space, lock_folder
from portal.config.supervision.ports import ListeningPort, check_ports, holder_of
from tests.processes import free_ports


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_a_taken_port_is_named_with_its_holder_and_the_variable(taken: int) -> None:
    with pytest.raises(StartError) as refused:
        check_ports([ListeningPort("SLIPWAY_PORTAL_PORT", "127.0.0.1", taken)])
    line = str(refused.value)
    assert f"port {taken} is taken by " in line
    assert f"(process {os.getpid()})" in line
    suggested = int(line.rpartition("SLIPWAY_PORTAL_PORT=")[2].split()[0])
    check_ports([ListeningPort("SLIPWAY_PORTAL_PORT", "127.0.0.1", suggested)])
    assert "\n" not in line


def test_nobody_holds_a_free_port() -> None:
    assert holder_of(free_ports(1)[0]) == ""


def test_two_doors_with_the_same_port_are_told_apart() -> None:
    port = free_ports(1)[0]
    doors = [
        ListeningPort("SLIPWAY_PORTAL_PORT", "127.0.0.1", port),
        ListeningPort("SLIPWAY_REDIS_PORT", "127.0.0.1", port),
    ]
    with pytest.raises(
        StartError, match=f"SLIPWAY_PORTAL_PORT and SLIPWAY_REDIS_PORT are both {port}"
    ):
        check_ports(doors)


def test_an_address_of_another_machine_cannot_be_opened() -> None:
    with pytest.raises(StartError, match=r"192\.0\.2\.1 port 8000 cannot be opened.*SLIPWAY_BIND"):
        check_ports([ListeningPort("SLIPWAY_PORTAL_PORT", "192.0.2.1", 8000)])


def test_too_little_room_on_the_disk_is_refused(tmp_path: Path) -> None:
    check_space(tmp_path, 1)
    with pytest.raises(StartError, match=r"MiB free and Slipway needs 1000000000 MiB"):
        check_space(tmp_path, 1_000_000_000)


def test_a_folder_is_taken_by_one_instance_at_a_time(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    descriptor = lock_folder(folder)
    with pytest.raises(StartError, match=rf"already runs on .*process {os.getpid()}"):
        lock_folder(folder)
    os.close(descriptor)
    os.close(lock_folder(folder))


def test_the_lock_of_a_killed_instance_is_waited_for(tmp_path: Path) -> None:
    holds_it_briefly = (
        "import fcntl, sys, time\n"
        "file = open(sys.argv[1], 'w'); fcntl.flock(file, fcntl.LOCK_EX)\n"
        "print('held', flush=True); time.sleep(0.5)"
    )
    with subprocess.Popen(
        [sys.executable, "-S", "-c", holds_it_briefly, str(tmp_path / "up.lock")],
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        os.close(lock_folder(tmp_path))


def test_a_folder_that_cannot_be_made_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StartError, match=r"file/data cannot be used \(Not a directory\)"):
        lock_folder(tmp_path / "file" / "data")


def test_a_full_disk_says_what_to_do(tmp_path: Path) -> None:
    full = OSError(28, "No space left on device")
    assert "is full; free some space, or set SLIPWAY_DATA_DIR" in str(
        start_error_from(full, tmp_path)
    )


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "exited with code 0"),
        (3, "exited with code 3"),
        (-15, "killed by SIGTERM (signal 15)"),
        (-9, "killed by SIGKILL (signal 9), manually or by the kernel's out-of-memory killer"),
        (-64, "killed by SIGRTMAX (signal 64)"),
        (-99, "killed by signal 99"),
    ],
)
def test_an_end_is_put_into_words(code: int, words: str) -> None:
    assert reason_of(code) == words
