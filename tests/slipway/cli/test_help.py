"""The help of every command, frozen: change `help.txt` on purpose or not at all.

To accept a change: ACCEPT_HELP=1 pytest tests/slipway/cli/test_help.py
"""

import os
import subprocess
import sys
from pathlib import Path

from tests.live import ROOT

SNAPSHOT = Path(__file__).parent / "help.txt"
# Walks every command in one process, because starting one for each would take a quarter minute.
WALK = """
import contextlib, io, typer
from slipway.cli.main import app, main

def walk(command, path):
    yield path
    for name, inner in getattr(command, "commands", {}).items():
        yield from walk(inner, [*path, name])

for path in walk(typer.main.get_command(app), []):
    print("$ slipway", *path, "--help")
    assert main([*path, "--help"]) == 0
"""


def test_the_help_is_the_one_that_was_agreed_on() -> None:
    environment = {name: value for name, value in os.environ.items() if "COMPLETE" not in name}
    done = subprocess.run(
        [sys.executable, "-c", WALK],
        env=environment
        | {"PYTHONPATH": str(ROOT / "platform"), "TYPER_USE_RICH": "0", "COLUMNS": "100"},
        capture_output=True,
        text=True,
        check=True,
    )
    if os.environ.get("ACCEPT_HELP"):
        SNAPSHOT.write_text(done.stdout)
    assert done.stdout == SNAPSHOT.read_text()


def test_every_command_takes_the_common_options() -> None:
    pages = SNAPSHOT.read_text().split("$ slipway ")[1:]
    verbs = [page for page in pages if "Commands:" not in page]
    assert len(verbs) > 30
    for page in verbs:
        assert all(option in page for option in ("--json", "--quiet", "--url")), page
