"""MLflow's own server, started on a Unix socket, with the portal's projects as its workspaces."""

import logging
import os
import socket
import warnings
from pathlib import Path

import uvicorn

from workers.tracking import capabilities, projects, sqlite

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it wraps its older half in what Starlette deprecates
    from mlflow.server.fastapi_app import app as mlflow_app

_GRACE_S = 3


def _listener(path: str) -> socket.socket:
    """Return a socket that its owner alone can open."""
    Path(path).unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    Path(path).chmod(0o600)
    listener.listen(128)
    return listener


def serve(path: str) -> None:
    """Serve on the Unix socket `path` until SIGTERM."""
    os.umask(0o077)
    projects.register()
    sqlite.listen()
    capabilities.limit(mlflow_app)
    logging.getLogger("mlflow").setLevel(logging.WARNING)
    config = uvicorn.Config(
        mlflow_app,
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="off",
        access_log=False,
        server_header=False,
        log_level="warning",
        timeout_graceful_shutdown=_GRACE_S,
    )
    uvicorn.Server(config).run(sockets=[_listener(path)])
