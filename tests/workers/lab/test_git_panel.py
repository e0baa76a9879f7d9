"""The Git panel of JupyterLab in a folder that all members of the project can write to."""

import asyncio
import subprocess
from pathlib import Path
from typing import Any

import pytest
from jupyterlab_git_core import git

from workers.lab.extensions import require_trusted_repositories


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository in which a colleague has named a program that git runs for its status."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    (tmp_path / "home").mkdir()
    folder = tmp_path / "workspace"
    subprocess.run(["git", "init", "-q", folder], check=True)
    planted = folder / "planted.sh"
    planted.write_text(f"#!/bin/sh\ntouch {tmp_path / 'ran'}\n")
    planted.chmod(0o755)
    subprocess.run(["git", "config", "core.fsmonitor", planted], check=True, cwd=folder)
    monkeypatch.setattr(git, "execute", git.execute)  # put back after the test
    require_trusted_repositories()
    return folder


def status(repository: Path) -> dict[str, Any]:
    """Return what the panel shows of a repository."""
    result: dict[str, Any] = asyncio.run(git.Git().status(str(repository)))
    return result


def test_git_runs_nothing_of_a_repository_that_its_person_does_not_trust(repository: Path) -> None:
    untrusted = status(repository)
    assert untrusted["code"] == 128
    assert "safe.directory" in untrusted["message"]
    assert not (repository.parent / "ran").exists()
    trust = ["git", "config", "--global", "--add", "safe.directory", str(repository)]
    subprocess.run(trust, check=True)
    assert status(repository)["code"] == 0
    assert (repository.parent / "ran").exists(), "the repository of this test would have run it"


def test_the_personal_folder_has_no_repository_for_the_panel(repository: Path) -> None:
    # The path of the file browser, which is not a folder of the workspace.
    shown = asyncio.run(git.Git().show_top_level(str(repository / "personal")))
    assert shown["path"] is None
