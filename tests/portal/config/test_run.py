"""`manage.py run`: one process by its name, and the question whether it is ready."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import ROOT, free_ports


def _run(folder: Path, *arguments: str, **settings: str) -> tuple[int, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    port = str(free_ports(1)[0])
    done = subprocess.run(
        [sys.executable, "manage.py", "run", *arguments],
        cwd=ROOT,
        env=kept
        | {
            "SLIPWAY_DATA_DIR": str(folder),
            "SLIPWAY_PORTAL_PORT": port,
            "SLIPWAY_ENV_FILE": os.devnull,
        }
        | settings,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_a_process_that_does_not_run_is_not_ready(tmp_path: Path) -> None:
    status, output = _run(tmp_path, "--check")
    assert status == 1
    assert output.startswith("slipway: portal: nothing listens on port")


@pytest.mark.parametrize(
    ("process", "expected"), [("gateway", "no token"), ("notebooks", "no credentials")]
)
def test_a_process_that_was_not_let_in_says_what_to_do(
    tmp_path: Path, process: str, expected: str
) -> None:
    status, output = _run(tmp_path, SLIPWAY_PROCESS=process)
    assert status == 2
    assert expected in output
    assert "manage.py prepare --for-up" in output


def test_an_unknown_process_is_one_clear_line(tmp_path: Path) -> None:
    status, output = _run(tmp_path, SLIPWAY_PROCESS="everything")
    assert status == 2
    assert output.startswith("slipway: SLIPWAY_PROCESS should be 'portal', 'control'")
    assert len(output.splitlines()) == 1


def test_an_internal_address_must_be_whole(tmp_path: Path) -> None:
    status, output = _run(tmp_path, SLIPWAY_INTERNAL_URL="portal:8000")
    assert status == 2
    assert "SLIPWAY_INTERNAL_URL must be http:// or https:// and a host" in output
