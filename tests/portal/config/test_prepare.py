"""`manage.py prepare`: what it asks at a terminal, and what it answers to trouble."""

import os
import pty
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import Popen

import pytest

from tests.processes import ROOT, Installation, installation

_TYPED = "correct horse battery"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Installation]:
    with installation(tmp_path, empty=True) as made:
        yield made


class Terminal:
    """`manage.py prepare` at a terminal of its own."""

    def __init__(self, place: Installation) -> None:
        self._ours, theirs = pty.openpty()
        self._process = Popen(
            [sys.executable, "manage.py", "prepare"],
            cwd=ROOT,
            env=place.environ,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            # getpass asks at the controlling terminal: the first one a new session opens.
            preexec_fn=lambda: os.close(os.open(os.ttyname(0), os.O_RDWR)),  # noqa: PLW1509
        )
        os.close(theirs)
        self.screen = ""

    def answer(self, question: str, text: str) -> None:
        """Wait for a question and type an answer."""
        before = len(self.screen)
        deadline = time.monotonic() + 60
        while question not in self.screen[before:]:
            assert time.monotonic() < deadline, self.screen
            self._read()
        os.write(self._ours, text.encode() + b"\n")

    def finish(self) -> int:
        """Read to the end; returns the exit status."""
        while self._read():
            pass
        os.close(self._ours)
        return self._process.wait(30)

    def _read(self) -> bool:
        try:
            data = os.read(self._ours, 4096)
        except OSError:
            return False
        self.screen += data.decode()
        return bool(data)


def test_at_a_terminal_the_password_is_asked_checked_and_never_shown(place: Installation) -> None:
    terminal = Terminal(place)
    terminal.answer("e-mail [admin@localhost]:", "not an address")
    terminal.answer("e-mail [admin@localhost]:", "ada@example.org")
    terminal.answer("password (Enter to generate one):", "short")
    terminal.answer("password (Enter to generate one):", _TYPED)
    terminal.answer("repeat the password:", "something else")
    terminal.answer("password (Enter to generate one):", _TYPED)
    terminal.answer("repeat the password:", _TYPED)
    assert terminal.finish() == 0
    assert "is not an e-mail address" in terminal.screen
    assert "too short" in terminal.screen
    assert "The passwords do not match." in terminal.screen
    assert "first administrator: ada@example.org" in terminal.screen
    assert _TYPED not in terminal.screen


def test_enter_twice_makes_a_password_that_is_shown_once(place: Installation) -> None:
    terminal = Terminal(place)
    terminal.answer("e-mail [admin@localhost]:", "")
    terminal.answer("password (Enter to generate one):", "")
    assert terminal.finish() == 0
    assert "first administrator: admin@localhost" in terminal.screen
    assert "write it down now" in terminal.screen
    again = place.manage("prepare")
    assert (again.returncode, again.stdout) == (0, "")


def test_ctrl_c_at_a_question_ends_without_a_trace(place: Installation) -> None:
    terminal = Terminal(place)
    terminal.answer("e-mail [admin@localhost]:", "\x03")
    assert terminal.finish() == 130
    assert "Traceback" not in terminal.screen


def test_two_installations_get_two_passwords(tmp_path: Path) -> None:
    outputs = set()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        with installation(tmp_path / name) as place:
            outputs.add(place.manage("prepare", "--no-input").stdout.partition("password:")[2])
    assert len(outputs) == 2


def test_a_database_that_does_not_answer_is_one_clear_line(place: Installation) -> None:
    done = place.manage(
        "prepare", "--no-input", DATABASE_URL="postgresql://slipway:secret@127.0.0.1:9/slipway"
    )
    assert done.returncode == 2
    assert done.stderr.startswith("slipway: the database cannot be used")
    assert "DATABASE_URL" in done.stderr
    assert "Connection refused" in done.stderr
    assert "secret" not in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_database_file_that_is_damaged_is_one_clear_line(place: Installation) -> None:
    place.data_dir.mkdir()
    (place.data_dir / "slipway.sqlite3").write_bytes(b"this is no database" * 1000)
    done = place.manage("prepare", "--no-input", DATABASE_URL="")
    assert done.returncode == 2
    assert done.stderr.startswith("slipway: the database cannot be used (file is not a database)")
    assert done.stderr.count("\n") == 1


def _prepared(place: Installation) -> Installation:
    done = place.manage("prepare", "--no-input", DATABASE_URL="")
    assert done.returncode == 0, done.stderr
    return place


@pytest.mark.parametrize("name", ["slipway.sqlite3", "mlflow.db"])
def test_a_database_that_is_missing_is_not_begun_anew(place: Installation, name: str) -> None:
    file = _prepared(place).data_dir / name
    file.rename(file.with_suffix(".away"))
    for command in (("prepare", "--no-input"), ("up", "--no-input")):
        done = place.manage(*command, DATABASE_URL="")
        assert done.returncode == 2, done.stdout
        assert str(file) in done.stderr
        assert "is missing, although" in done.stderr
        assert "manage.py restore FILE" in done.stderr
        assert done.stderr.count("\n") == 1
        assert not file.exists()
    file.with_suffix(".away").rename(file)
    assert place.manage("prepare", "--no-input", DATABASE_URL="").returncode == 0


def test_a_missing_database_is_begun_anew_where_that_is_asked_for(place: Installation) -> None:
    file = _prepared(place).data_dir / "slipway.sqlite3"
    file.unlink()
    done = place.manage("prepare", "--no-input", "--new-database", DATABASE_URL="")
    assert done.returncode == 0, done.stderr
    assert "password:" in done.stdout
    assert file.exists()


def test_other_commands_create_no_database(place: Installation) -> None:
    file = _prepared(place).data_dir / "slipway.sqlite3"
    file.unlink()
    done = place.manage("migrate", DATABASE_URL="")
    assert done.returncode != 0
    assert "The database file slipway.sqlite3 is missing" in done.stderr
    assert not file.exists()
