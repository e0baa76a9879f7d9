"""The command on a real terminal: questions, hidden input, colours, hostile text, Ctrl-C."""

import json
import os
import re
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.live import LivePortal
from tests.slipway.cli.terminals import (
    COMMAND,
    PATIENCE_S,
    Terminals,
    environment,
    terminals,
    without_styles,
)
from tests.slipway.servers import NASTY, Answer, answer_json, cut_in_the_middle, drip, serve

__all__ = ["environment", "terminals"]
WHOAMI = {"user": {"id": "u1", "email": NASTY, "name": NASTY}, "is_administrator": False}
PROJECT = {
    "id": NASTY,
    "slug": NASTY,
    "name": NASTY,
    "description": NASTY,
    "created_at": "2026-11-20T12:00:00Z",
}
PROBLEM = {
    "type": NASTY,
    "title": NASTY,
    "status": 409,
    "detail": NASTY,
    "code": NASTY,
    "next_step": NASTY,
    "request_id": NASTY,
    "errors": [{"field": NASTY, "message": NASTY}],
}


def hostile(method: str, path: str) -> Answer:
    """A server that answers well, with text that attacks the terminal."""
    if path.endswith("/whoami"):
        return answer_json(WHOAMI)
    if method == "GET" and path.partition("?")[0].endswith("/projects"):
        return answer_json({"items": [PROJECT], "next_cursor": None})
    if method == "GET" and "/projects/" in path:
        return answer_json(PROJECT)
    return answer_json(PROBLEM, 409, **{"X-Request-Id": "x"})


def test_signing_in_opens_the_page_and_hides_the_token(
    terminals: Terminals, portal: LivePortal, tmp_path: Path
) -> None:
    opened = tmp_path / "opened"
    browser = tmp_path / "bin" / "xdg-open"
    browser.parent.mkdir()
    browser.write_text(f'#!/bin/sh\necho "$1" > "{opened}.new" && mv "{opened}.new" "{opened}"\n')
    browser.chmod(browser.stat().st_mode | stat.S_IXUSR)
    path = f"{browser.parent}{os.pathsep}{os.environ['PATH']}"
    terminal = terminals.run("login", portal.url, DISPLAY=":0", PATH=path)
    terminal.expect("Paste the token")
    terminal.wait_for_hidden_input()
    terminal.type(portal.tokens["alice"] + "\n")
    terminal.expect("as alice@example.org")
    assert terminal.finish() == 0
    assert portal.tokens["alice"] not in terminal.seen
    deadline = time.monotonic() + PATIENCE_S
    while not opened.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert opened.read_text().startswith(f"{portal.url}/settings/tokens/new?name=cli-")


def test_without_a_screen_the_address_is_shown_and_nothing_opened(
    terminals: Terminals, portal: LivePortal
) -> None:
    terminal = terminals.run("login", portal.url, "--scope", "projects:read")
    terminal.expect("/settings/tokens/new?name=cli-")
    terminal.wait_for_hidden_input()
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.finish() == 130


@pytest.mark.thorough
def test_archiving_asks_and_takes_no_for_an_answer(
    terminals: Terminals, environment: dict[str, str], portal: LivePortal
) -> None:
    environment |= {"SLIPWAY_URL": portal.url, "SLIPWAY_TOKEN": portal.tokens["alice"]}
    made = subprocess.run(
        [*COMMAND, "project", "create", "Asked", "-q"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    slug = made.stdout.strip()
    terminal = terminals.run("project", "archive", slug)
    terminal.expect(f"Archive the project {slug} (Asked)?")
    terminal.type("n\n")
    assert terminal.finish() == 130
    assert "Nothing was changed" in terminal.seen
    terminal = terminals.run("project", "archive", slug)
    terminal.expect("[y/N]")
    terminal.type("y\n")
    assert terminal.finish() == 0
    assert f"slipway project restore {slug}" in terminal.seen


@pytest.mark.thorough
def test_a_secret_is_typed_without_being_seen(
    terminals: Terminals, environment: dict[str, str], portal: LivePortal
) -> None:
    environment |= {"SLIPWAY_URL": portal.url, "SLIPWAY_TOKEN": portal.tokens["alice"]}
    subprocess.run(
        [*COMMAND, "project", "create", "Typed", "--slug", "typed", "-q"],
        env=environment,
        capture_output=True,
        check=True,
    )
    terminal = terminals.run("secret", "set", "KEY", "-p", "typed")
    terminal.expect("Value of KEY")
    terminal.wait_for_hidden_input()
    terminal.type("hunter2\n")
    assert terminal.finish() == 0
    assert "KEY is written to project typed" in terminal.seen
    assert "hunter2" not in terminal.seen


@pytest.mark.parametrize(
    "arguments",
    [
        ("project", "list"),
        ("project", "show", "x"),
        pytest.param(("project", "list", "-q"), marks=pytest.mark.thorough),
        pytest.param(("project", "list", "--json"), marks=pytest.mark.thorough),
        pytest.param(("project", "archive", "x"), marks=pytest.mark.thorough),
        pytest.param(("project", "restore", "x"), marks=pytest.mark.thorough),
        pytest.param(("project", "restore", "x", "--json"), marks=pytest.mark.thorough),
        pytest.param(("whoami",), marks=pytest.mark.thorough),
    ],
)
def test_nothing_a_server_says_reaches_the_terminal_raw(
    terminals: Terminals, arguments: tuple[str, ...]
) -> None:
    with serve(hostile) as url:
        terminal = terminals.run(*arguments, SLIPWAY_URL=url, SLIPWAY_TOKEN="slp_x")
        if arguments == ("project", "archive", "x"):
            terminal.expect("[y/N]")
            terminal.type("n\n")
        terminal.finish()
    shown = without_styles(terminal.seen)
    assert not set(shown) & set("\x1b\x07\x9b\u202e")
    assert "owned" in shown
    assert "[red]" in shown


@pytest.mark.thorough
def test_a_table_has_colours_unless_they_are_refused(terminals: Terminals) -> None:
    with serve(hostile) as url:
        seen = {}
        for no_color in ("", "1"):
            terminal = terminals.run(
                "project", "list", SLIPWAY_URL=url, SLIPWAY_TOKEN="slp_x", NO_COLOR=no_color
            )
            assert terminal.finish() == 0
            seen[no_color] = terminal.seen
    colour = re.compile(r"\x1b\[[0-9;]*3[0-7]")
    assert "SLUG" in seen[""]
    assert "SLUG" in seen["1"]
    assert not colour.search(seen["1"])


@pytest.mark.thorough
def test_the_progress_of_an_export_is_shown_and_cleared(
    terminals: Terminals, portal: LivePortal, tmp_path: Path
) -> None:
    file = tmp_path / "audit.csv"
    token = portal.tokens["alice"]
    terminal = terminals.run(
        *("audit", "export", "-o", str(file)), SLIPWAY_URL=portal.url, SLIPWAY_TOKEN=token
    )
    assert terminal.finish() == 0
    assert "Exporting" in terminal.seen
    assert f"{file.stat().st_size:,} bytes" in terminal.seen


def test_an_export_never_goes_to_the_terminal(terminals: Terminals, portal: LivePortal) -> None:
    terminal = terminals.run("audit", "export", SLIPWAY_URL=portal.url, SLIPWAY_TOKEN="slp_x")
    assert terminal.finish() == 2
    assert "--output audit.csv" in terminal.seen


@pytest.mark.thorough
def test_an_export_that_is_cut_off_leaves_no_file(
    environment: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "out" / "audit.csv"
    file.parent.mkdir()
    file.write_text("the one before")
    with serve(lambda method, path: cut_in_the_middle) as url:
        done = subprocess.run(
            [*COMMAND, "audit", "export", "-o", str(file), "--yes"],
            env=environment | {"SLIPWAY_URL": url, "SLIPWAY_TOKEN": "slp_x"},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 7
    assert "the connection broke" in done.stderr
    assert [path.read_text() for path in file.parent.iterdir()] == ["the one before"]


def test_ctrl_c_ends_with_its_own_code(environment: dict[str, str]) -> None:
    requested, stop = threading.Event(), threading.Event()

    def choose(method: str, path: str) -> Answer:
        requested.set()
        return drip(stop)

    with serve(choose) as url:
        process = subprocess.Popen(
            [*COMMAND, "whoami"],
            env=environment | {"SLIPWAY_URL": url, "SLIPWAY_TOKEN": "slp_x"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert requested.wait(PATIENCE_S)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=PATIENCE_S)
        stop.set()
    assert process.returncode == 130
    assert b"Traceback" not in error


@pytest.mark.thorough
def test_a_reader_that_hangs_up_is_no_fault(environment: dict[str, str]) -> None:
    items = [PROJECT | {"name": "x" * 90} for _ in range(200)]
    pages = iter(range(10_000))

    def choose(method: str, path: str) -> Answer:
        return answer_json({"items": items, "next_cursor": str(next(pages))})

    with serve(choose) as url:
        process = subprocess.Popen(
            [*COMMAND, "project", "list", "--limit", "2000"],
            env=environment | {"SLIPWAY_URL": url, "SLIPWAY_TOKEN": "slp_x"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        error = process.stderr.read()
        process.stderr.close()
        assert process.wait(timeout=PATIENCE_S) == 141
    assert error == b""


def test_output_that_cannot_be_written_is_explained(environment: dict[str, str]) -> None:
    with serve(hostile) as url, Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*COMMAND, "project", "list", "--json"],
            env=environment | {"SLIPWAY_URL": url, "SLIPWAY_TOKEN": "slp_x"},
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.returncode == 1
    assert "No space left" in json.loads(done.stderr)["detail"]


@pytest.mark.thorough
def test_streams_that_are_closed_do_no_harm(environment: dict[str, str]) -> None:
    script = f"exec {sys.executable} -m slipway project list <&- >&- 2>&-"
    with serve(hostile) as url:
        done = subprocess.run(
            ["/bin/sh", "-c", script],
            env=environment | {"SLIPWAY_URL": url, "SLIPWAY_TOKEN": "slp_x"},
            check=False,
        )
    assert done.returncode == 0
