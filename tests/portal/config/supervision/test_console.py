"""The log of the supervisor."""

import errno
import io
import os
from pathlib import Path

import pytest

from portal.config.supervision.console import Console, LineReader, RotatingFile


def _console(folder: Path) -> tuple[Console, io.StringIO, Path]:
    terminal = io.StringIO()
    path = folder / "logs" / "all.log"
    return Console(terminal, RotatingFile(path), ["slipway", "web"]), terminal, path


def test_each_line_stands_behind_the_name_of_its_process(tmp_path: Path) -> None:
    console, terminal, path = _console(tmp_path)
    console.line("web", "GET /")
    assert terminal.getvalue() == "web     | GET /\n"
    assert path.read_text().endswith("Z web     | GET /\n")


def test_the_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    _, _, path = _console(tmp_path)
    assert path.stat().st_mode & 0o777 == 0o600


def test_what_a_stranger_sent_cannot_steer_the_terminal(tmp_path: Path) -> None:
    console, terminal, path = _console(tmp_path)
    console.line("web", "name=\x1b[2Jgone\rslipway | all is well\x9b1m")
    for text in (terminal.getvalue(), path.read_text()):
        assert "\\x1b[2Jgone\\x0dslipway | all is well\\x9b1m" in text
        assert text.count("\n") == 1


def test_a_full_log_file_makes_room_and_keeps_the_last_few(tmp_path: Path) -> None:
    log = RotatingFile(tmp_path / "all.log", max_bytes=100, keep=2)
    for number in range(10):
        log.write(f"{number}" * 50)
    kept = sorted(path.name for path in tmp_path.iterdir())
    assert kept == ["all.log", "all.log.1", "all.log.2"]
    assert (tmp_path / "all.log").read_text() == "9" * 50 + "\n"
    assert (tmp_path / "all.log.2").read_text() == "7" * 50 + "\n"


class _FullDisk(RotatingFile):
    def write(self, line: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_is_said_once_and_the_terminal_goes_on(tmp_path: Path) -> None:
    terminal = io.StringIO()
    console = Console(terminal, _FullDisk(tmp_path / "all.log"), ["web"])
    console.line("web", "one")
    console.line("web", "two")
    assert terminal.getvalue().count("No space left on device") == 1
    assert "web | two" in terminal.getvalue()


class _GoneTerminal(io.StringIO):
    def flush(self) -> None:
        raise BrokenPipeError


def test_when_nobody_reads_the_terminal_the_file_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "all.log"
    console = Console(_GoneTerminal(), RotatingFile(path), ["web"])
    console.line("web", "one")
    console.line("web", "two")
    assert path.read_text().count("\n") == 2


@pytest.fixture
def pipe() -> tuple[int, int]:
    return os.pipe()


def test_a_pipe_is_cut_into_lines_however_the_bytes_arrive(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    lines: list[str] = []
    reader = LineReader(reading, lines.append)
    os.write(writing, b"one\ntw")
    assert reader.read()
    assert lines == ["one"]
    os.write(writing, b"o\r\nth\xffree")
    os.close(writing)
    assert not reader.read()
    assert lines == ["one", "two", "th\ufffdree"]
    os.close(reading)


def test_a_line_without_end_does_not_fill_the_memory(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    os.set_blocking(writing, False)
    lines: list[str] = []
    reader = LineReader(reading, lines.append)
    written = 0
    while written < 300_000:
        written += os.write(writing, b"x" * 20_000)
        reader.read()
    os.close(writing)
    reader.read()
    os.close(reading)
    assert sum(map(len, lines)) == written
    assert max(map(len, lines)) <= 64 * 1024 + 20_000
