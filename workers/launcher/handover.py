"""Hands a launch to the one process that may know it: as a descriptor, unread on the way."""

import array
import os
import socket
from typing import Final

_WORD: Final = b"L"


def sealed_file(content: bytes) -> int:
    """Return a descriptor of an anonymous file with this content, which is on no disk."""
    descriptor = os.memfd_create("launch", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(content)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def send_descriptor(peer: socket.socket, descriptor: int) -> None:
    """Send a descriptor over a Unix socket. Raises OSError, BlockingIOError when it is full."""
    rights = array.array("i", [descriptor]).tobytes()
    peer.sendmsg([_WORD], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])


def receive_descriptor(peer: socket.socket) -> int | None:
    """Wait for the next descriptor. Return None once the other side has closed."""
    word, rights, _, _ = peer.recvmsg(1, socket.CMSG_SPACE(4))
    if not word or not rights:
        return None
    return array.array("i", rights[0][2][:4])[0]


def read_all(descriptor: int) -> bytes:
    """Read a file from its beginning and close it."""
    with os.fdopen(descriptor, "rb") as file:
        file.seek(0)
        return file.read()
