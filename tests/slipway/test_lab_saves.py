"""Saves of notebooks: what lies in the shared workspace is neither written through nor believed."""

import json
import os
from pathlib import Path

import pytest

from slipway.lab_saves import SaveQueue, Sender, sender_of
from slipway.notebook_door import Door, door_of

CONTENT = b'{"cells": []}'


@pytest.fixture
def door(monkeypatch: pytest.MonkeyPatch) -> Door:
    """The way to a portal that is away."""
    monkeypatch.setenv("SLIPWAY_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("SLIPWAY_TOKEN", "slw_none")
    monkeypatch.setenv("SLIPWAY_PROJECT", "vision")
    monkeypatch.setenv("SLIPWAY_WORKLOAD", "wl_1")
    found = door_of(os.environ)
    assert found is not None
    return found


def test_the_queue_is_in_the_personal_folder(
    door: Door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, personal = tmp_path / "workspace", tmp_path / "person"
    old = workspace / ".slipway" / "people" / "usr_1" / "saves"
    SaveQueue(old).put("forged.ipynb", CONTENT)
    monkeypatch.setenv("SLIPWAY_PERSONAL_DIR", str(personal))
    monkeypatch.setenv("SLIPWAY_LAB_PERSON", "usr_1")
    sender = sender_of(workspace)
    assert sender is not None
    assert list(sender.queue.waiting()) == []
    sender.queue.put("mine.ipynb", CONTENT)
    assert [path.parent for path in personal.rglob("*.save")] == [personal / ".slipway" / "saves"]


@pytest.mark.parametrize("planted", ["link", "folder", "pipe", "nonsense"])
def test_planted_notes_are_not_believed_and_not_written_through(
    door: Door, tmp_path: Path, planted: str
) -> None:
    workspace, personal = tmp_path / "workspace", tmp_path / "person"
    (workspace / ".slipway").mkdir(parents=True)
    personal.mkdir()
    victim = personal / ".bashrc"
    victim.write_text("as it was")
    known = workspace / ".slipway" / "known.json"
    # The name that releases before wrote to first.
    (workspace / ".slipway" / "known.part").symlink_to(victim)
    if planted == "link":
        known.symlink_to(victim)
    elif planted == "folder":
        (workspace / ".slipway" / "known.part").unlink()
        (workspace / ".slipway").rmdir()
        (workspace / ".slipway").symlink_to(personal)
    elif planted == "pipe":
        os.mkfifo(known)
    else:
        known.write_text(json.dumps({"a.ipynb": ["no note"]}))
    sender = Sender(door, workspace=workspace, queue=SaveQueue(personal / "saves"))
    assert sender._read_known() == {}
    sender._note("a.ipynb", 1, CONTENT)
    assert victim.read_text() == "as it was"
    assert sorted(path.name for path in personal.iterdir()) == [".bashrc"]
