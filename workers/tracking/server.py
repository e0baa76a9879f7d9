"""MLflow's own server, started on a Unix socket, with the portal's projects as its workspaces."""

import logging
import os
import socket
import warnings
from pathlib import Path
from typing import Any

import uvicorn

from workers.tracking import database_gate, projects, sqlite
from workers.tracking.access import SameUserProtocol, SecretRequired, read_secret

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # MLflow uses a deprecated middleware of Starlette
    from mlflow.server.fastapi_app import app as mlflow_app
    from mlflow.server.handlers import build_server_info_payload
    from mlflow.utils.server_info import (
        SERVER_INFO_MULTIPART_DOWNLOADS_ENABLED,
        SERVER_INFO_MULTIPART_UPLOADS_ENABLED,
    )

# Longer than the portal keeps an idle connection (`portal.api.mlflow.upstream`).
_IDLE_S = 30
_GRACE_S = 3
_CAPABILITIES = "/api/3.0/mlflow/server-info"


def _capabilities() -> dict[str, Any]:
    server_info_payload = build_server_info_payload()
    server_info_payload[SERVER_INFO_MULTIPART_UPLOADS_ENABLED] = False
    server_info_payload[SERVER_INFO_MULTIPART_DOWNLOADS_ENABLED] = False
    return server_info_payload


def _disable_direct_artifacts() -> None:
    """Make the server report that artifacts go only through it.

    For a bucket it would offer clients direct addresses, which bypass all access checks. A client
    that has received those does not fall back to the proxied route.
    """
    mlflow_app.add_api_route(_CAPABILITIES, _capabilities)
    routes = mlflow_app.router.routes
    routes.insert(0, routes.pop())


def _listener(path: str) -> socket.socket:
    """Return a socket that its owner alone can open."""
    Path(path).unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    Path(path).chmod(0o600)
    listener.listen(128)
    return listener


def serve(path: str, key_file: str) -> None:
    """Serve on the Unix socket `path` until SIGTERM, for clients with the secret in `key_file`.

    Raises OSError or ValueError if the secret cannot be read.
    """
    os.umask(0o077)
    secret = read_secret(Path(key_file))
    projects.register()
    sqlite.listen()
    database_gate.limit_attempts()
    _disable_direct_artifacts()
    logging.getLogger("mlflow").setLevel(logging.WARNING)
    config = uvicorn.Config(
        SecretRequired(mlflow_app, secret),
        loop="uvloop",
        http=SameUserProtocol,
        ws="none",
        lifespan="off",
        access_log=False,
        server_header=False,
        log_level="warning",
        timeout_graceful_shutdown=_GRACE_S,
        timeout_keep_alive=_IDLE_S,
    )
    uvicorn.Server(config).run(sockets=[_listener(path)])
