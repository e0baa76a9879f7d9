"""Sockets of a data folder with a long path are in a private folder of temporary files."""

import tempfile
from pathlib import Path

import pytest

from portal.config.env import read_env
from portal.config.relay import folder_of
from portal.config.supervision.errors import StartError
from portal.config.tracking_server import remove_socket, socket_of


@pytest.fixture
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with a path of over a hundred characters; temporary files are beside it."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    long = tmp_path / ("long-" * 20)
    long.mkdir()
    return long


def test_each_process_has_a_folder_of_its_own(data_dir: Path, tmp_path: Path) -> None:
    relay = folder_of(read_env({"SLIPWAY_DATA_DIR": str(data_dir)}, tmp_path / "none"))
    tracking = socket_of(data_dir).parent
    assert relay != tracking
    for folder in (relay, tracking):
        assert folder.parent == tmp_path / "tmp"
        assert folder.stat().st_mode & 0o777 == 0o700
    remove_socket(data_dir)
    assert not tracking.exists()


def test_a_folder_that_others_can_enter_is_refused(data_dir: Path, tmp_path: Path) -> None:
    environ = {"SLIPWAY_DATA_DIR": str(data_dir)}
    folder_of(read_env(environ, tmp_path / "none")).chmod(0o755)
    with pytest.raises(StartError, match="the folder of the relay's sockets must be there"):
        folder_of(read_env(environ, tmp_path / "none"))
