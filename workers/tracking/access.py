"""Access control of MLflow's server: peer credentials of a connection, a secret in each request.

The routes of MLflow have no authentication of their own, and the portal decides which workspace a
request may name. Any other caller would bypass its roles, limits and audit log.
"""

import asyncio
import hmac
import os
import socket
import struct
from pathlib import Path
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_UCRED: Final = struct.Struct("3i")
_ROOT: Final = 0
_HEADER: Final = b"authorization"
_UNAUTHENTICATED: Final = (
    b'{"error_code": "UNAUTHENTICATED", "message": "MLflow\'s server accepts only the portal."}'
)
_CLOSE: Final = (b"connection", b"close")
# The portal recognises by this header that the refusal does not concern its client.
_CHALLENGE: Final = (b"www-authenticate", b"Bearer")
_FORBIDDEN: Final = (
    b"HTTP/1.1 403 Forbidden\r\nWWW-Authenticate: Bearer\r\nConnection: close\r\n"
    b"Content-Length: 0\r\n\r\n"
)


def peer_uid(connection: Any) -> int:
    """Return the user whose process connected, as the kernel noted it at that moment."""
    ucred = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    return int(_UCRED.unpack(ucred)[1])


def read_secret(path: Path) -> str:
    """Return the secret of the portal. Raises ValueError if the file is empty."""
    secret = path.read_text("ascii").strip()
    if not secret:
        raise ValueError(f"{path.name} is empty")
    return secret


class SameUserProtocol(HttpToolsProtocol):
    """HTTP for processes of our own user and of root. Others are refused before they are read."""

    _is_refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Compare the user of the peer with ours."""
        if peer_uid(transport.get_extra_info("socket")) in (os.getuid(), _ROOT):
            super().connection_made(transport)
            return
        self._is_refused = True
        transport.write(_FORBIDDEN)
        transport.close()

    def data_received(self, data: bytes) -> None:
        """Parse requests, unless the peer was refused."""
        if not self._is_refused:
            super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Clean up what `connection_made` has set up."""
        if not self._is_refused:
            super().connection_lost(exc)


class SecretRequired:
    """ASGI middleware: passes on requests with the secret, and takes it out of them."""

    def __init__(self, app: Any, secret: str) -> None:
        self._app = app
        self._expected = f"Bearer {secret}".encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Refuse a request unless it has exactly one credential and that is ours."""
        headers = scope.get("headers", ())
        credentials = [value for name, value in headers if name == _HEADER]
        is_known = len(credentials) == 1 and hmac.compare_digest(credentials[0], self._expected)
        if scope["type"] != "http" or not is_known:
            await _refuse(send)
            return
        without_secret = [header for header in headers if header[0] != _HEADER]

        async def send_and_close(event: Any) -> None:
            # After an exception uvicorn closes the connection without announcing it, and the portal
            # would reuse it.
            if event["type"] == "http.response.start" and event["status"] >= 500:
                event = {**event, "headers": [*event.get("headers", ()), _CLOSE]}
            await send(event)

        await self._app({**scope, "headers": without_secret}, receive, send_and_close)


async def _refuse(send: Any) -> None:
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(_UNAUTHENTICATED)).encode()),
        # The remaining data of this connection is not read.
        _CLOSE,
        _CHALLENGE,
    ]
    await send({"type": "http.response.start", "status": 401, "headers": headers})
    await send({"type": "http.response.body", "body": _UNAUTHENTICATED})
