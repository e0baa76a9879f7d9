"""uv is told what pip is told, and left out where it would not follow."""

import subprocess
import sys
from pathlib import Path

import pytest

from workers.node_agent.uv_install import RequiresPip, arguments_of_uv, settings_of_pip, uv_of

INDEX = "index-url"
MIRROR = "https://mirror.example.org/packages"
AS_PIP_CHOOSES = ["--index-strategy", "unsafe-best-match"]


def arguments(listed: str) -> list[str]:
    """The options of uv for what `pip config list` printed, without those that never change."""
    options = arguments_of_uv(settings_of_pip(listed))
    assert options[:2] == AS_PIP_CHOOSES
    return options[2:]


def test_what_is_not_set_is_not_said() -> None:
    assert arguments("") == []


def test_every_place_of_packages_is_handed_on() -> None:
    listed = f"global.{INDEX}='{MIRROR}'\nglobal.extra-{INDEX}='{MIRROR}/a {MIRROR}/b'\n"
    listed += ":env:.find-links='/wheels'\nglobal.constraint='/etc/some.txt'\n"
    listed += "global.cert='/etc/some.crt'\nglobal.trusted-host='one two'\n"
    assert arguments(listed) == [
        *("--cert", "/etc/some.crt"),
        *("--constraints", "/etc/some.txt"),
        *(f"--extra-{INDEX}", f"{MIRROR}/a", f"--extra-{INDEX}", f"{MIRROR}/b"),
        *("--find-links", "/wheels"),
        *(f"--{INDEX}", MIRROR),
        *("--allow-insecure-host", "one", "--allow-insecure-host", "two"),
    ]


def test_what_is_said_nearer_counts() -> None:
    listed = "global.find-links='/a'\ninstall.find-links='/b'\n"
    assert arguments(listed) == ["--find-links", "/b"]
    assert arguments(listed + ":env:.find-links='/c'\n") == ["--find-links", "/c"]


@pytest.mark.parametrize(("value", "expected"), [("1", ["--no-index"]), ("false", [])])
def test_an_index_can_be_forbidden(value: str, expected: list[str]) -> None:
    assert arguments(f":env:.no-index='{value}'") == expected


def test_how_pip_talks_and_waits_is_its_own_affair() -> None:
    assert arguments("global.timeout='60'\n:env:.no-input='1'\nfreeze.timeout='10'\n") == []


def test_a_folder_that_is_not_there_is_left_out_as_pip_leaves_it_out(tmp_path: Path) -> None:
    missing = (tmp_path / "missing").as_uri()
    here = tmp_path.as_uri()
    assert arguments(f"global.find-links='{missing} {here}'") == ["--find-links", here]


@pytest.mark.parametrize(
    "line",
    [
        "global.only-binary=':all:'",
        "install.user='true'",
        "global.proxy='http://proxy.example.org'",
        f"global.{INDEX}='{MIRROR} {MIRROR}/2'",
        f"global.{INDEX}=not a string",
        "what is this?",
    ],
)
def test_what_uv_would_not_follow_leaves_it_to_pip(line: str) -> None:
    with pytest.raises(RequiresPip):
        arguments(line)


def test_the_settings_of_this_machine_are_understood() -> None:
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert arguments_of_uv(settings_of_pip(listed))[:2] == AS_PIP_CHOOSES


def test_uv_is_found_beside_an_interpreter_or_not_at_all(tmp_path: Path) -> None:
    assert uv_of(sys.executable) is not None
    assert uv_of(str(tmp_path / "python")) is None
