"""Command that makes a machine a node, without the token, which `ps` would show to others."""

import shlex
from dataclasses import dataclass
from urllib.parse import urlsplit

from django.conf import settings


@dataclass(frozen=True)
class JoinCommand:
    """A command to run on a machine. It asks for the token.

    `is_local` if the address works on this machine alone.
    """

    address: str
    text: str
    is_local: bool


def join_command(node_name: str | None = None) -> JoinCommand:
    """Return the command with the address of this installation."""
    address = settings.SLIPWAY_URL
    name = f" --name {shlex.quote(node_name)}" if node_name else ""
    return JoinCommand(
        address=address,
        text=f"slipway node join {address} --token -{name}",
        is_local=_is_loopback(address),
    )


def _is_loopback(address: str) -> bool:
    host = urlsplit(address).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")
