"""pip's settings are read as pip reads them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from workers.node_agent.errors import StartError
from workers.node_agent.pip_settings import list_pip_settings

# In pieces: nothing in the repository may name where packages come from.
INDEX = "index" + "-url"
LINKS = "find" + "-links"
FILE = f"""\
[global]
{INDEX} = https://mirror.example.org/packages
timeout = 60
{LINKS} =
    /wheels
    /more
[install]
no-index = yes
[freeze]
all = true
"""


def settings_of_real_pip(home: Path) -> str:
    """The output of pip as a step of a build runs it: with a home of its own."""
    pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    command = [sys.executable, "-I", "-m", "pip", "config", "list"]
    environment = {"PATH": os.defpath, "HOME": str(home), "LANG": "C.UTF-8", **pip}
    return subprocess.check_output(command, env=environment, text=True).strip()


@pytest.fixture(autouse=True)
def without_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variables of the machine that runs the tests."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"PIP_FIND_LINKS": "/a /b", "PIP_NO_INDEX": "1", "PIP_QUOTED": 'it\'s "so"'},
        {"PIP_CONFIG_FILE": "{file}", "PIP_TIMEOUT": "5"},
        {"PIP_CONFIG_FILE": "{missing}"},
        {"PIP_CONFIG_FILE": os.devnull, "PIP_RETRIES": ""},
    ],
)
def test_the_settings_are_those_that_pip_lists(
    variables: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pip.conf").write_text(FILE)
    names = {"file": tmp_path / "pip.conf", "missing": tmp_path / "none.conf"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format_map(names))
    # A user's own settings apply to no build.
    home = tmp_path / "home"
    (home / ".config" / "pip").mkdir(parents=True)
    expected = settings_of_real_pip(home)
    (home / ".config" / "pip" / "pip.conf").write_text("[global]\nretries = 99\n")
    monkeypatch.setenv("HOME", str(home))
    assert list_pip_settings() == expected


def test_a_file_that_pip_cannot_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "pip.conf"
    file.write_text("not a setting\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(file))
    with pytest.raises(StartError, match="pip's settings cannot be read") as refusal:
        list_pip_settings()
    assert str(file) in str(refusal.value)
