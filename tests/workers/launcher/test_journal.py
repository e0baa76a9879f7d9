"""The journal of a task: whole lines in order, one end, whatever happens to its writers."""

import json
import multiprocessing
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.launcher.journal import Journal


def events(journal: Journal) -> list[str]:
    """The kinds of all events."""
    return [entry.event["kind"] for entry in journal.read(0)]


def test_events_are_read_in_order_from_any_offset(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    for step in range(5):
        assert journal.append("progress", step=step)
    entries = journal.read(0)
    assert [entry.event["step"] for entry in entries] == [0, 1, 2, 3, 4]
    rest = journal.read(entries[2].end_offset)
    assert [entry.event["step"] for entry in rest] == [3, 4]
    assert [entry.event["step"] for entry in journal.read(0, limit=2)] == [0, 1]


def test_after_the_end_nothing_is_added(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    assert journal.append("ended", reason="completed")
    assert not journal.append("ended", reason="signal")
    assert not journal.append("progress", step=9)
    assert events(journal) == ["ended"]
    assert journal.has_ended()


@given(cut=st.integers(min_value=0, max_value=200))
def test_a_line_its_writer_did_not_finish_is_cut_off(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    path = tmp_path_factory.mktemp("journal") / "journal.jsonl"
    journal = Journal(path)
    journal.append("starting", message="a" * 50)
    whole = path.stat().st_size
    journal.append("running", message="b" * 50)
    os.truncate(path, min(path.stat().st_size, whole + cut))
    survived = len(journal.read(0))
    journal.append("ended")
    assert len(events(journal)) == survived + 1
    assert events(journal)[-1] == "ended"


def test_nothing_is_read_from_no_file(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "none")
    assert journal.read(0) == []
    assert journal.last() is None
    assert not journal.has_ended()


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text('{"kind":"ended"}\n')
    (tmp_path / "journal.jsonl").symlink_to(tmp_path / "secret")
    journal = Journal(tmp_path / "journal.jsonl")
    assert journal.read(0) == []
    assert not journal.has_ended()
    with pytest.raises(OSError, match="symbolic links"):
        journal.append("ended")


def _append_many(path: Path, writer: int) -> None:
    for number in range(200):
        Journal(path).append("progress", writer=writer, step=number)


def test_writers_do_not_mix_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_append_many, args=(path, number)) for number in range(3)]
    for process in writers:
        process.start()
    for process in writers:
        process.join()
    written = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(written) == 600
    for writer in range(3):
        steps = [event["step"] for event in written if event["writer"] == writer]
        assert steps == list(range(200))
