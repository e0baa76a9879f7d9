"""The relay's server: agents of nodes connect, and doors appear for what their nodes serve.

What this process can reach: the portal's agent API with the tokens of the nodes that are connected,
and through their connections the sockets of workloads that those nodes serve. It has no database,
no key of the installation, and no secret of its own.
"""

import asyncio
import http
import logging
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.http11 import Request, Response

from slipway.schemas.relay import RELAY_PATH, RelayGrant
from workers.portal_client.client import PortalRefused, PortalUnreachable
from workers.relay.doors import clear_doors
from workers.relay.frames import MAX_FRAME
from workers.relay.nodes import NodeConnection, Portal

log = logging.getLogger(__name__)
_MOST_CONNECTIONS: Final = 4096
_HANDSHAKE_S: Final = 10.0
_CLOSE_S: Final = 2.0
_PING_S: Final = 20.0
WRITE_LIMIT: Final = 256 << 10
_BEARER: Final = "bearer "
_MAX_TOKEN: Final = 200
_REPLACED: Final = "The node has connected again."
_RESTART: Final = 1012


@dataclass(frozen=True)
class Route:
    """A path of the relay and its access policy."""

    path: str
    policy: str


ROUTES: Final = (
    Route("/healthz", "anybody: whether it is alive"),
    Route("/readyz", "anybody: whether it is ready"),
    Route(RELAY_PATH, "a node, with its token, which the portal checks"),
)


class RelayServer:
    """Accepts the connections of agents until it is stopped."""

    def __init__(self, *, host: str, port: int, folder: Path, portal_url: str) -> None:
        self._host = host
        self._port = port
        self._folder = folder
        self._portal = Portal(portal_url)
        self._nodes: dict[str, NodeConnection] = {}
        self._server: Server | None = None

    @property
    def port(self) -> int:
        """The port it listens on."""
        assert self._server is not None  # noqa: S101  (start comes first)
        return int(next(iter(self._server.sockets)).getsockname()[1])

    async def start(self) -> None:
        """Start listening. Raises OSError."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder.chmod(0o700)
        clear_doors(self._folder)
        self._server = await serve(
            self._serve_node,
            self._host,
            self._port,
            process_request=self._answer,
            compression=None,
            max_size=MAX_FRAME,
            write_limit=WRITE_LIMIT,
            open_timeout=_HANDSHAKE_S,
            close_timeout=_CLOSE_S,
            ping_interval=_PING_S,
            ping_timeout=_PING_S,
            server_header=None,
        )

    async def stop(self) -> None:
        """Close all connections. Their agents connect again."""
        if self._server is not None:
            self._server.close(code=_RESTART, reason="The relay is stopping.")
            with suppress(TimeoutError):
                await asyncio.wait_for(self._server.wait_closed(), 2 * _CLOSE_S)
        clear_doors(self._folder)
        await self._portal.close()

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT. Raises OSError."""
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await self.start()
        log.info("listening on port %d", self.port)
        await stop.wait()
        await self.stop()

    async def _answer(self, connection: ServerConnection, request: Request) -> Response | None:
        """Answer a request that is no connection of a node, or return None."""
        path = request.path.partition("?")[0]
        if path in ("/healthz", "/readyz"):
            return connection.respond(http.HTTPStatus.OK, "ok\n")
        if path != RELAY_PATH:
            return connection.respond(http.HTTPStatus.NOT_FOUND, "There is no such page.\n")
        # No page of a browser has business here.
        token = _token_of(request)
        if not token or "Origin" in request.headers:
            return _refuse(connection, "Send Authorization: Bearer and the token of the node.\n")
        assert self._server is not None  # noqa: S101  (it calls this)
        if len(self._server.connections) >= _MOST_CONNECTIONS:
            return connection.respond(
                http.HTTPStatus.SERVICE_UNAVAILABLE, "There are too many connections.\n"
            )
        try:
            grant = await self._portal.grant(token)
        except PortalRefused as error:
            return _refuse(connection, f"{error.detail}\n")
        except PortalUnreachable:
            return connection.respond(
                http.HTTPStatus.SERVICE_UNAVAILABLE, "The portal does not respond. Try again.\n"
            )
        _remember(connection, token, grant)
        return None

    async def _serve_node(self, connection: ServerConnection) -> None:
        token, grant = _remembered(connection)
        node = NodeConnection(
            connection, token=token, grant=grant, portal=self._portal, folder=self._folder
        )
        earlier = self._nodes.get(node.node_id)
        self._nodes[node.node_id] = node
        if earlier is not None:
            # Its agent has noticed before us that the connection broke.
            await earlier.close(_REPLACED)
        log.info("the node %s is connected", node.node_id)
        try:
            reason = await node.run()
            log.info("the node %s is disconnected: %s", node.node_id, reason)
        finally:
            if self._nodes.get(node.node_id) is node:
                del self._nodes[node.node_id]


def _token_of(request: Request) -> str:
    """Return the one bearer token of a request, or nothing."""
    values = request.headers.get_all("Authorization")
    if len(values) != 1 or not values[0].lower().startswith(_BEARER):
        return ""
    token = values[0][len(_BEARER) :].strip()
    return token if len(token) <= _MAX_TOKEN and token.isascii() and token.isprintable() else ""


def _refuse(connection: ServerConnection, text: str) -> Response:
    response = connection.respond(http.HTTPStatus.UNAUTHORIZED, text)
    response.headers["WWW-Authenticate"] = "Bearer"
    return response


def _remember(connection: ServerConnection, token: str, grant: RelayGrant) -> None:
    """Keep what the handshake has checked, for the handler of the same connection."""
    connection.slipway_admission = (token, grant)  # type: ignore[attr-defined]


def _remembered(connection: ServerConnection) -> tuple[str, RelayGrant]:
    token, grant = connection.slipway_admission  # type: ignore[attr-defined]
    return token, grant
