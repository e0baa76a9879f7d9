"""A disk that fills up: the task ends with the reason, and the story still gets through."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.workers.fake_portal import FakePortal
from tests.workers.machines import Machine, eventually


@pytest.mark.thorough
def test_a_task_that_fills_the_disk_is_explained(
    portal: FakePortal, make_machine: Callable[..., Machine], small_disk: Path
) -> None:
    # Beyond what there is: nothing but the disk itself ends the task.
    machine = make_machine("--task-disk", "1GiB", "--disk-reserve", "1MiB")
    machine.data_dir = small_disk / "node"
    machine.start().connected()
    script = "with open('big', 'wb') as file:\n    while True: file.write(bytes(1 << 16))\n"
    key = portal.state.run("t1", script)
    end = eventually(lambda: portal.state.end_of(key))
    assert end.reason == "disk_full", end
    assert "disk is full" in end.message
    # What the task filled is removed with it, and the node takes work again.
    portal.state.forget(key)
    eventually(lambda: not machine.state(key).path.exists())
    again = portal.state.run("t2", "print('fine')")
    assert eventually(lambda: portal.state.end_of(again)).reason == "completed"


def test_a_task_that_finds_the_disk_full_is_explained(
    portal: FakePortal, make_machine: Callable[..., Machine], small_disk: Path
) -> None:
    machine = make_machine()
    machine.data_dir = small_disk / "node"
    machine.start().connected()
    filler = small_disk / "filler"
    try:
        with filler.open("wb") as file:
            while True:
                file.write(bytes(4096))
                file.flush()
    except OSError:
        pass
    key = portal.state.run("t1", "print('never')")
    end = eventually(lambda: portal.state.end_of(key))
    assert end.reason == "disk_full", end
    filler.unlink()
    portal.state.forget(key)
    again = portal.state.run("t2", "print('fine')")
    assert eventually(lambda: portal.state.end_of(again)).reason == "completed"
