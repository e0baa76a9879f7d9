"""What a shell completes, as a real bash asks for it."""

import os
import secrets
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import slipway
from slipway.cli.completion import LIMIT_S
from tests.live import ROOT, LivePortal
from tests.slipway.servers import Answer, answer_json, drip, serve

# Loads the script bash would load, asks it to complete the words given, prints what it offers.
BASH = """
source <(_SLIPWAY_COMPLETE=source_bash slipway)
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_slipway_completion slipway
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A machine on which `slipway` is installed."""
    command = tmp_path / "bin" / "slipway"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m slipway "$@"\n')
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SLIPWAY_")}
    return kept | {
        "PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "platform"),
        "SLIPWAY_CONFIG_DIR": str(tmp_path / "config"),
    }


def complete(environment: dict[str, str], *words: str, **changes: str) -> list[str]:
    done = subprocess.run(
        ["/bin/bash", "--norc", "-c", BASH, "bash", "slipway", *words],
        env=environment | changes,
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.thorough
def test_verbs_and_options_are_completed(environment: dict[str, str]) -> None:
    assert complete(environment, "project", "arc") == ["archive"]
    assert complete(environment, "project", "list", "--arch") == ["--archived"]
    assert complete(environment, "token", "create", "x", "--scope", "files:") == [
        "files:read",
        "files:write",
    ]


@pytest.mark.thorough
def test_the_slugs_of_projects_and_teams_come_from_the_server(
    environment: dict[str, str], portal: LivePortal
) -> None:
    word = f"c{secrets.token_hex(4)}"
    with slipway.Client(portal.url, portal.tokens["alice"]) as client:
        for name in (f"{word} one", f"{word} two", "Something else"):
            client.projects.create(name)
        client.teams.create(f"{word} team")
    environment |= {"SLIPWAY_URL": portal.url, "SLIPWAY_TOKEN": portal.tokens["alice"]}
    assert complete(environment, "project", "show", word[:6]) == [f"{word}-two", f"{word}-one"]
    assert complete(environment, "secret", "list", "-p", f"{word}-o") == [f"{word}-one"]
    assert complete(environment, "team", "show", word) == [f"{word}-team"]


@pytest.mark.thorough
def test_the_names_of_optuna_storages_come_from_the_server(
    environment: dict[str, str], portal: LivePortal
) -> None:
    entry = '{"op_code": 1, "worker_id": "w", "study_id": 0}'
    with slipway.Client(portal.url, portal.tokens["alice"]) as client:
        project = client.projects.create(f"Project {secrets.token_hex(4)}").slug
        for name in ("first", "second"):
            client.optuna.append(name, [entry], project=project)
    environment |= {"SLIPWAY_URL": portal.url, "SLIPWAY_TOKEN": portal.tokens["alice"]}
    here = ("--project", project)
    assert complete(environment, "optuna", "delete", *here, "s") == ["second"]
    assert complete(environment, "optuna", "delete", "f") == []


@pytest.mark.thorough
def test_without_a_login_or_a_server_it_stays_silent(environment: dict[str, str]) -> None:
    assert complete(environment, "project", "show", "") == []
    gone = {"SLIPWAY_URL": "http://127.0.0.1:1", "SLIPWAY_TOKEN": "slp_x"}
    assert complete(environment, "project", "show", "", **gone) == []


@pytest.mark.thorough
def test_a_name_that_a_shell_would_run_is_not_offered(
    environment: dict[str, str], tmp_path: Path
) -> None:
    nasty = [f"$(touch {tmp_path}/ran)", "`id`", "a b", "*", "x;y", "churn\n", "../x", "churn"]
    items = [
        {
            "id": "p",
            "slug": slug,
            "name": slug,
            "description": "",
            "created_at": "2026-11-20T12:00:00Z",
        }
        for slug in nasty
    ]
    with serve(lambda method, path: answer_json({"items": items, "next_cursor": None})) as url:
        offered = complete(
            environment, "project", "show", "", SLIPWAY_URL=url, SLIPWAY_TOKEN="slp_x"
        )
    assert offered == ["churn"]
    assert not (tmp_path / "ran").exists()


@pytest.mark.thorough
def test_a_slow_server_is_waited_for_a_second_at_most(environment: dict[str, str]) -> None:
    requested, stop = threading.Event(), threading.Event()
    process = []

    def slow(method: str, path: str) -> Answer:
        requested.set()
        return drip(stop)

    with serve(slow) as url:
        environment |= {"SLIPWAY_URL": url, "SLIPWAY_TOKEN": "slp_x"}
        asking = threading.Thread(
            target=lambda: process.append(complete(environment, "project", "show", ""))
        )
        asking.start()
        assert requested.wait(20)
        started = time.monotonic()
        asking.join()
        waited_s = time.monotonic() - started
        stop.set()
    assert process == [[]]
    # The whole answer would take 100 s. On a busy machine the interpreter and bash need seconds to
    # end.
    assert waited_s < LIMIT_S + 5
