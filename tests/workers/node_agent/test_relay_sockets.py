"""Sockets that the agent connects to the relay: those of shims, and nothing in their place."""

import os
import socket
from pathlib import Path

import pytest

from workers.node_agent.relay import is_own_socket, open_own_socket


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a short path, which the agent has made."""
    return tmp_path_factory.mktemp("s")


def _listen(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen()
    return listener


def test_a_socket_is_reached_although_its_path_is_replaced(folder: Path) -> None:
    path = folder / "shell"
    with _listen(path) as shim, _listen(folder / "other"):
        descriptor = open_own_socket(path)
        assert descriptor is not None
        path.unlink()
        path.symlink_to(folder / "other")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.connect(f"/proc/self/fd/{descriptor}")
            shim.settimeout(5)
            shim.accept()[0].close()
        os.close(descriptor)
        assert not is_own_socket(path)


@pytest.mark.parametrize("kind", ["nothing", "file", "folder", "pipe"])
def test_what_is_no_socket_is_not_opened(folder: Path, kind: str) -> None:
    path = folder / "shell"
    if kind == "file":
        path.touch()
    elif kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    assert open_own_socket(path) is None


@pytest.mark.skipif(os.getuid() != 0, reason="it gives files to other users")
def test_sockets_belong_to_the_agent_or_to_the_owner_of_their_folder(folder: Path) -> None:
    path = folder / "shell"
    with _listen(path):
        os.chown(path, 65_534, 65_534)
        assert not is_own_socket(path)
        os.chown(folder, 65_534, 65_534)
        assert is_own_socket(path)
        os.chown(path, 65_533, 65_533)
        assert not is_own_socket(path)
