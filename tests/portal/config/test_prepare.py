"""`manage.py prepare`: what it asks at a terminal, and what it answers to trouble."""

import os
import pty
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import Popen

import pytest

from tests.prepared import copy_tables
from tests.processes import ROOT, Installation, installation

_TYPED = "correct horse battery"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Installation]:
    """An installation that has its tables, as making them takes ten seconds of a processor."""
    with installation(tmp_path) as made:
        yield made


@pytest.fixture
def empty_place(tmp_path: Path) -> Iterator[Installation]:
    """An installation without tables."""
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


@pytest.mark.thorough
def test_at_a_terminal_the_password_is_asked_checked_and_never_shown(
    empty_place: Installation,
) -> None:
    terminal = Terminal(empty_place)
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


@pytest.mark.thorough
def test_enter_twice_makes_a_password_that_is_shown_once(place: Installation) -> None:
    terminal = Terminal(place)
    terminal.answer("e-mail [admin@localhost]:", "")
    terminal.answer("password (Enter to generate one):", "")
    assert terminal.finish() == 0
    assert "first administrator: admin@localhost" in terminal.screen
    assert "write it down now" in terminal.screen
    again = place.manage("prepare")
    assert (again.returncode, again.stdout) == (0, "")


@pytest.mark.thorough
def test_ctrl_c_at_a_question_ends_without_a_trace(place: Installation) -> None:
    terminal = Terminal(place)
    terminal.answer("e-mail [admin@localhost]:", "\x03")
    assert terminal.finish() == 130
    assert "Traceback" not in terminal.screen


@pytest.mark.thorough
def test_two_installations_get_two_passwords(tmp_path: Path) -> None:
    outputs = set()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        with installation(tmp_path / name) as place:
            outputs.add(place.manage("prepare", "--no-input").stdout.partition("password:")[2])
    assert len(outputs) == 2


@pytest.mark.thorough
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


@pytest.mark.thorough
def test_a_database_file_that_is_damaged_is_one_clear_line(place: Installation) -> None:
    place.data_dir.mkdir(exist_ok=True)
    (place.data_dir / "slipway.sqlite3").write_bytes(b"this is no database" * 1000)
    done = place.manage("prepare", "--no-input", DATABASE_URL="")
    assert done.returncode == 2
    assert done.stderr.startswith("slipway: the database cannot be used (file is not a database)")
    assert done.stderr.count("\n") == 1


@pytest.fixture(scope="module")
def prepared_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The data folder of a prepared installation on SQLite, to copy."""
    with installation(tmp_path_factory.mktemp("prepared")) as made:
        copy_tables(made.data_dir)
        done = made.manage("prepare", "--no-input", DATABASE_URL="")
        assert done.returncode == 0, done.stderr
        yield made.data_dir


@pytest.fixture
def prepared(prepared_folder: Path, place: Installation) -> Path:
    """The data folder of an installation of the test's own that was prepared."""
    shutil.copytree(prepared_folder, place.data_dir, dirs_exist_ok=True)
    return place.data_dir


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("slipway.sqlite3", "up"),
        ("mlflow.db", "prepare"),
        pytest.param("slipway.sqlite3", "prepare", marks=pytest.mark.slow),
        pytest.param("mlflow.db", "up", marks=pytest.mark.slow),
    ],
)
def test_a_database_that_is_missing_is_not_begun_anew(
    place: Installation, prepared: Path, name: str, command: str
) -> None:
    file = prepared / name
    file.rename(file.with_suffix(".away"))
    done = place.manage(command, "--no-input", DATABASE_URL="")
    assert done.returncode == 2, done.stdout
    assert str(file) in done.stderr
    assert "is missing, although" in done.stderr
    assert "manage.py restore FILE" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not file.exists()
    file.with_suffix(".away").rename(file)
    assert place.manage("prepare", "--no-input", DATABASE_URL="").returncode == 0


@pytest.mark.thorough
def test_a_missing_database_is_begun_anew_where_that_is_asked_for(
    place: Installation, prepared: Path
) -> None:
    file = prepared / "slipway.sqlite3"
    file.unlink()
    done = place.manage("prepare", "--no-input", "--new-database", DATABASE_URL="")
    assert done.returncode == 0, done.stderr
    assert "password:" in done.stdout
    assert file.exists()


@pytest.mark.thorough
def test_other_commands_create_no_database(place: Installation, prepared: Path) -> None:
    file = prepared / "slipway.sqlite3"
    file.unlink()
    done = place.manage("migrate", DATABASE_URL="")
    assert done.returncode != 0
    assert "The database file slipway.sqlite3 is missing" in done.stderr
    assert not file.exists()
