"""What a rank tells the machine it runs on, and that it never waits for an answer."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from slipway.distributed.announce import SOCKET_VARIABLE, Announcer
from tests.slipway.distributed.conftest import RunRanks

pytestmark = pytest.mark.ranks


def _heard(door: socket.socket) -> list[dict[str, Any]]:
    messages = []
    door.setblocking(False)
    while True:
        try:
            messages.append(json.loads(door.recv(65_536)))
        except BlockingIOError:
            return messages


def _door(folder: Path) -> tuple[socket.socket, dict[str, str]]:
    path = folder / "door"
    door = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    door.bind(str(path))
    return door, {SOCKET_VARIABLE: str(path)}


def test_a_job_tells_its_strategy_its_steps_and_its_checkpoints(
    run_ranks: RunRanks, tmp_path: Path
) -> None:
    door, environment = _door(tmp_path)
    environment["SLIPWAY_PERSISTENT_DIR"] = str(tmp_path)
    with door:
        run_ranks(2, "save_in_the_given_folder", environment=environment)
        heard = _heard(door)
    assert {"strategy": "zero3", "reason": "zero3 was asked for.", "rank": 1} in heard
    assert {"step": 1, "rank": 0} in heard
    assert {"step": 1, "rank": 1} in heard
    written = [message["checkpoint"] for message in heard if "checkpoint" in message]
    assert [(checkpoint["step"], checkpoint["kept"]) for checkpoint in written] == [(2, [2])]
    folder = tmp_path / "checkpoints" / "step-0000000002"
    files = [file for file in folder.iterdir() if file.name != "manifest.json"]
    assert written[0]["size_bytes"] == sum(file.stat().st_size for file in files)


def test_a_full_or_missing_door_costs_nothing(tmp_path: Path) -> None:
    Announcer(0, {}).step(1)
    Announcer(0, {SOCKET_VARIABLE: str(tmp_path / "nobody")}).step(1)
    door, environment = _door(tmp_path)
    with door:
        announcer = Announcer(3, environment)
        for number in range(10_000):
            announcer.checkpoint(number, 1, [number])
        checkpoint = {"step": 0, "size_bytes": 1, "kept": [0]}
        assert _heard(door)[0] == {"checkpoint": checkpoint, "rank": 3}
    announcer.checkpoint(1, 1, [1])
    announcer.close()
    announcer.step(2)


def test_steps_are_told_a_few_times_a_second_and_the_last_one_at_the_end(tmp_path: Path) -> None:
    door, environment = _door(tmp_path)
    with door:
        announcer = Announcer(0, environment)
        for number in range(1, 50):
            announcer.step(number)
        announcer.close()
        assert _heard(door) == [{"step": 1, "rank": 0}, {"step": 49, "rank": 0}]
