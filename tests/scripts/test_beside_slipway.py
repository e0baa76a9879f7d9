"""Tests leave a Slipway alone that somebody uses from the same shell or folder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.live import ROOT


def _environment(**settings: str) -> dict[str, str]:
    own = ("SLIPWAY_", "PYTEST", "TESTS_", "DJANGO_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    return kept | settings


@pytest.mark.thorough
def test_a_test_run_does_not_touch_the_data_folder_of_the_shell(tmp_path: Path) -> None:
    in_use = tmp_path / "in use"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:schemathesis"),
            *("-p", "no:cacheprovider", f"--basetemp={tmp_path / 'temporary'}"),
            "tests/portal/accounts/test_secrets.py",
        ],
        cwd=ROOT,
        env=_environment(SLIPWAY_DATA_DIR=str(in_use), SLIPWAY_PORTAL_PORT="not a port"),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not in_use.exists()


def test_another_file_of_settings_replaces_the_one_of_the_folder(tmp_path: Path) -> None:
    file = tmp_path / "settings"
    file.write_text("SLIPWAY_PORTAL_PORT=8123\n")
    shown = _settings(file)
    assert "SLIPWAY_PORTAL_PORT=8123\n" in shown.stdout, shown.stdout + shown.stderr
    missing = _settings(tmp_path / "none")
    assert missing.returncode == 2
    assert f"SLIPWAY_ENV_FILE names {tmp_path / 'none'}, which does not exist." in missing.stderr
    assert "Traceback" not in missing.stderr


def _settings(file: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "manage.py", "settings"],
        cwd=ROOT,
        env=_environment(SLIPWAY_ENV_FILE=str(file)),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
