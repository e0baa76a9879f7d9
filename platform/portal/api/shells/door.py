"""Requests to the shim of a task, which serves its shells behind a door of the relay."""

import json
import socket
from pathlib import Path
from typing import Any, Final

from portal.core.errors import Conflict, Unavailable

_PATIENCE_S: Final = 10.0
_ANSWER_LIMIT: Final = 64 << 10


def ask(path: Path, request: dict[str, Any]) -> None:
    """Send one request and wait until it is fulfilled. Raises Conflict, Unavailable."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(_PATIENCE_S)
            connection.connect(str(path))
            connection.sendall(packed(request))
            line = connection.makefile("rb").readline(_ANSWER_LIMIT)
        answer = json.loads(line)
    except FileNotFoundError as error:
        raise Conflict(
            "The shell has not started, or its node is connecting again.",
            code="shell_not_ready",
            next_step="Follow its output, and try again once it is ready.",
        ) from error
    except (OSError, ValueError) as error:
        raise Unavailable(
            "The node of the task cannot be reached now.",
            code="node_unreachable",
            next_step="Try again.",
            retry_after_s=1,
        ) from error
    check(answer)


def packed(request: dict[str, Any]) -> bytes:
    """Return a request as the shim reads it."""
    return json.dumps(request, separators=(",", ":")).encode() + b"\n"


def check(answer: dict[str, Any]) -> None:
    """Raise Conflict or Unavailable if the shim has refused."""
    code = answer.get("error")
    detail = str(answer.get("detail", ""))[:500]
    if code == "busy":
        raise Unavailable(detail, code="shell_busy", next_step="Try again.", retry_after_s=1)
    if code:
        raise Conflict(detail, code=str(code)[:32], next_step="Open another shell.")
